// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// full: pods hold memory, and one of them more and more of it, until the node uses more than the strategy says, by the kernel's
// own count. That one goes: its priority is the lowest, and of those of that priority it holds the most. What it has held is
// free again, by the kernel's count too. Who holds more at a higher priority stays, and LS.
//
// What is to be left below the mark is more than the 1 % of the node that an eviction must free at least, so that one pod is
// enough. On a node of 24 GiB the pods hold 1.4 GiB at most.
func (n *governed) full(t *testing.T) {
	total, _ := memory(t)
	percent := total / 100
	room := percent + 96*mib
	n.holder(t, "crumb", "BE", "batch-low", holding(32*mib))
	n.holder(t, "keeper", "BE", "batch-high", holding(1.5*room+32*mib))
	n.heldBy(t, n.ready(t, "crumb"), 32*mib)
	n.heldBy(t, n.ready(t, "keeper"), 1.5*room+32*mib)
	used := inUse(t)
	service := math.Ceil((used+64*mib+room)/percent)*percent - room - used
	n.holder(t, "service", "LS", "", holding(service))
	n.heldBy(t, n.ready(t, "service"), service)
	before := map[string]int{}
	for _, name := range []string{"ls", "crumb", "keeper", "service"} {
		before[name] = restarts(n.ready(t, name))
	}
	n.beyond(t)

	used = inUse(t)
	mark := math.Ceil((used + room - 32*mib) / percent)
	if mark > 90 {
		t.Fatalf("%.0f of %.0f MiB are in use: koordlet would take the node for one in danger", used/mib, total/mib)
	}
	since := time.Now()
	n.patch(t, threshold(map[string]any{"enable": true, "memoryEvictThresholdPercent": int(mark), "memoryEvictLowerPercent": int(mark) - 1}))
	n.inForce(t)
	n.ticksTo(t, n.ticked(t)+2)
	if got := n.evictedSince(t, since); len(got) > 0 {
		t.Fatalf("evictions %q below the mark: %.0f of %.0f MiB in use, %g %%", got, inUse(t)/mib, total/mib, mark)
	}
	// Ten steps lead to the mark. There are five more, should others give memory back meanwhile, and no more: keeper holds more.
	left := mark*percent - used
	hoard := n.holder(t, "hoard", "BE", "batch-low", fmt.Sprintf(
		`i=0; while [ $i -lt 15 ]; do dd if=/dev/zero bs=%.0f count=1 | sleep 2147483647 & i=$((i+1)); sleep 0.3; done; wait`, left/10))
	held, most := 0.0, 0.0
	eventually(t, 60*time.Second, func() error {
		most = max(most, inUse(t))
		if now, err := n.memoryOf(hoard); err == nil {
			held = max(held, now)
		}
		_, err := n.c.Admin().Get(t.Context(), batchPods+"hoard")
		switch {
		case err == nil:
			return fmt.Errorf("hoard is not gone: it has held %.0f MiB, %.0f of %.0f were in use, the mark is at %.0f", held/mib, most/mib, total/mib, mark*percent/mib)
		case cluster.Refused(err, "NotFound"):
			return nil
		}
		return err
	})
	if most <= mark*percent {
		t.Errorf("%.0f MiB were in use at most, the mark is at %.0f", most/mib, mark*percent/mib)
	}
	var now float64
	eventually(t, 10*time.Second, func() error {
		if now = inUse(t); now > most-0.75*held {
			return fmt.Errorf("%.0f MiB are in use, %.0f were, of which hoard held %.0f", now/mib, most/mib, held/mib)
		}
		return nil
	})
	t.Logf("MiB in use of %.0f: %.0f with room up to the mark at %.0f, %.0f at most, of which hoard %.0f and keeper %.0f; %.0f without hoard",
		total/mib, used/mib, mark*percent/mib, most/mib, held/mib, 1.5*room/mib+32, now/mib)
	n.promised(t, since, fmt.Sprintf("is above %.0f%%", mark), held)
	if got, want := n.evictedSince(t, since), []string{"hoard " + hoard.Str("metadata", "uid") + " 201"}; !slices.Equal(got, want) {
		t.Errorf("evictions %q, want %q", got, want)
	}
	for name, count := range before {
		n.untouched(t, name)
		if got := restarts(n.ready(t, name)); got != count {
			t.Errorf("%s was started again: %d, before %d", name, got, count)
		}
	}
	n.patch(t, threshold(map[string]any{"enable": false}))
	n.remove(t, "crumb", "keeper", "service")
	n.inForce(t)
}

// holding is a shell's line that holds memory: dd has read it and waits for a reader of its pipe.
func holding(bytes float64) string {
	return fmt.Sprintf("dd if=/dev/zero bs=%.0f count=1 | sleep 2147483647", bytes)
}

// holder makes a pod. It is let out of memory QoS: where there is memory.high, a node that is close to its mark would hold those
// of best effort to what they have for a minute, which other tests show.
func (n *governed) holder(t *testing.T, name, class, priority, line string) cluster.Object {
	t.Helper()
	return n.make(t, name, map[string]any{
		"labels": map[string]any{"koordinator.sh/qosClass": class}, "annotations": map[string]any{"koord-rt.dev/opt-out": "memory-qos"},
	}, map[string]any{"priorityClassName": priority}, line)
}

// make makes a pod of one container that runs a shell's line.
func (n *governed) make(t *testing.T, name string, meta, spec map[string]any, line string) cluster.Object {
	t.Helper()
	meta["name"], meta["namespace"] = name, "batch"
	maps.Copy(spec, map[string]any{
		"nodeName": n.k.Node, "dnsPolicy": "Default", "terminationGracePeriodSeconds": 1,
		"containers": []any{map[string]any{
			"name": "main", "image": parts.ImageRef, "imagePullPolicy": "Never", "command": []string{"/bin/sh", "-c", line},
		}},
	})
	pod := cluster.Object{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
	made, err := n.c.Admin().Create(t.Context(), strings.TrimSuffix(batchPods, "/"), pod)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// remove deletes pods and waits until they are gone.
func (n *governed) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := n.c.Admin().Delete(t.Context(), batchPods+name, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		n.gone(t, name)
	}
}

// inUse is the memory that cannot be had without reclaim that hurts, in bytes.
func inUse(t *testing.T) float64 {
	t.Helper()
	total, available := memory(t)
	return total - available
}

// memoryOf is what a pod holds by the kernel's count, in bytes.
func (n *governed) memoryOf(pod cluster.Object) (float64, error) {
	file := "memory.usage_in_bytes"
	if n.tree.V2() {
		file = "memory.current"
	}
	text, err := cgroups.Read(n.podDir(pod, "memory"), file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

// heldBy waits until a pod holds so much.
func (n *governed) heldBy(t *testing.T, pod cluster.Object, bytes float64) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		got, err := n.memoryOf(pod)
		if err == nil && got < bytes {
			err = fmt.Errorf("%s holds %.0f MiB, want %.0f", pod.Str("metadata", "name"), got/mib, bytes/mib)
		}
		return err
	})
}

// evictedSince are the evictions that koordlet has asked for: name, UID and answer.
func (n *governed) evictedSince(t *testing.T, since time.Time) (out []string) {
	t.Helper()
	for _, c := range n.audit.calls(t, func(c *call) bool { return c.what() == "create pods/eviction" && c.At.After(since) }) {
		out = append(out, fmt.Sprintf("%s %s %d", c.Object.Name, c.body(t).Str("deleteOptions", "preconditions", "uid"), c.Response.Code))
	}
	return out
}

var promise = regexp.MustCompile(`promised ([0-9.]+ [MG]iB), its use fell by ([0-9.]+ [MG]iB), the node's went from [0-9.]+ [MG]iB to [0-9.]+ [MG]iB`)

// promised: what koordlet says that the end of hoard has released is what the pod held by the kernel's count. It went on
// growing between koordlet's last look and its end.
func (n *governed) promised(t *testing.T, since time.Time, cause string, held float64) {
	t.Helper()
	var word string
	eventually(t, 20*time.Second, func() (err error) {
		word, err = n.released(t, since, "hoard", "gone")
		return err
	})
	t.Log(word)
	m := promise.FindStringSubmatch(word)
	if m == nil || !strings.Contains(word, cause) {
		t.Fatalf("the audit says of hoard: %s; want %q, and what was promised and came", word, cause)
	}
	for _, text := range m[1:] {
		if got := amount(t, strings.TrimSuffix(strings.ReplaceAll(text, " ", ""), "B")); got < held/2 || got > held*1.1 {
			t.Errorf("%s of hoard, which held %.0f MiB", text, held/mib)
		}
	}
}

// beyond: a best-effort pod takes more memory than its batch-memory, which koordlet has made its limit. The kernel kills that one
// process, and nobody else (F2-5 of the documents).
func (n *governed) beyond(t *testing.T) {
	t.Helper()
	first := kills(t)
	const spec = `{"containers":{"main":{"requests":{"kubernetes.io/batch-memory":"64Mi"},"limits":{"kubernetes.io/batch-memory":"64Mi"}}}}`
	n.make(t, "greedy", map[string]any{
		"labels": map[string]any{"koordinator.sh/qosClass": "BE"}, "annotations": map[string]any{"node.koordinator.sh/extended-resource-spec": spec},
	}, map[string]any{"restartPolicy": "Never"}, `until grep -qs 67108864 /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; `+
		`do sleep 0.2; done; exec dd if=/dev/zero of=/dev/null bs=96M count=1`)
	pod := n.wait(t, "greedy", "killed", func(p cluster.Object) bool { return p.Str("status", "phase") == "Failed" })
	if code := pod.Int("status", "containerStatuses", 0, "state", "terminated", "exitCode"); code != 137 {
		t.Errorf("greedy ended with %d: %s", code, pod.Compact("status", "containerStatuses"))
	}
	eventually(t, 10*time.Second, func() error {
		status, _, err := n.h.CRI().ContainerStatus(t.Context(), idOf(pod))
		if err == nil && status.Reason != "OOMKilled" {
			err = fmt.Errorf("containerd says of greedy: %q", status.Reason)
		}
		return err
	})
	n.remove(t, "greedy")
	if more := kills(t) - first; more != 1 {
		t.Errorf("the kernel has killed %d processes", more)
	}
}

// kills are the processes that the kernel has killed for want of memory, on the node or in a cgroup: oom_kill of /proc/vmstat.
func kills(t *testing.T) int {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/vmstat")) {
		if text, ok := strings.CutPrefix(line, "oom_kill "); ok {
			count, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				t.Fatal(err)
			}
			return count
		}
	}
	t.Fatal("/proc/vmstat has no oom_kill")
	return 0
}
