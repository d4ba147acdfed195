// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// charge is what the kernel counts of a cgroup and all below it, in bytes: everything, and what is anonymous.
type charge struct{ used, anon float64 }

func (c charge) String() string {
	return fmt.Sprintf("%.0f MiB, of them %.0f anonymous", c.used/mib, c.anon/mib)
}

// charge reads a directory of the memory controller; not here when there is none.
func (n *governed) charge(t *testing.T, dir string) (c charge, here bool) {
	t.Helper()
	file, key := "memory.usage_in_bytes", "total_rss "
	if n.tree.V2() {
		file, key = "memory.current", "anon "
	}
	used, err := cgroups.Read(dir, file)
	var stat string
	if err == nil {
		stat, err = cgroups.Read(dir, "memory.stat")
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return charge{}, false
	}
	if err == nil {
		c.used, err = strconv.ParseFloat(used, 64)
	}
	found := false
	for line := range strings.Lines(stat) {
		if text, ok := strings.CutPrefix(line, key); ok && err == nil {
			c.anon, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
			found = true
		}
	}
	if err != nil || !found {
		t.Fatalf("memory of %s: %v", dir, err)
	}
	return c, true
}

// balance is what the kernel counts at one moment, in bytes.
type balance struct {
	total, available float64
	// listed is free on lists of the CPUs: /proc/meminfo does not have that yet, and gets it within a minute or so.
	listed    float64
	tier, pod charge
}

// inUse is what cannot be had: the figure that evictions go by.
func (b balance) inUse() float64 { return b.total - b.available - b.listed }

func (b balance) String() string {
	return fmt.Sprintf("%.0f (%.0f, %.0f)", b.inUse()/mib, b.listed/mib, b.tier.used/mib)
}

// balance looks at a pod, at the class of best-effort pods and at the node.
func (n *governed) balance(t *testing.T, h *holding) (b balance) {
	t.Helper()
	b.pod, _ = n.charge(t, n.podDir(h.pod, "memory"))
	tier := filepath.Join(n.mount("memory"), n.k.CgroupRoot, "kubepods", "besteffort")
	var here bool
	if b.tier, here = n.charge(t, tier); !here {
		t.Fatalf("there is no %s", tier)
	}
	b.total, b.available = memory(t)
	b.listed = listed(t)
	return b
}

// listed is what CPUs keep of the free pages: count of the pagesets in /proc/zoneinfo.
func listed(t *testing.T) (bytes float64) {
	t.Helper()
	found := false
	for line := range strings.Lines(read(t, "/proc/zoneinfo")) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "count:"); ok {
			pages, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				t.Fatalf("/proc/zoneinfo: %q: %v", line, err)
			}
			bytes += float64(pages * os.Getpagesize())
			found = true
		}
	}
	if !found {
		t.Fatal("/proc/zoneinfo has no lists of CPUs")
	}
	return bytes
}

// make makes a pod of one container that runs a shell's line. It gets a second to end, unless its spec says more.
func (n *governed) make(t *testing.T, name string, meta, spec map[string]any, line string) cluster.Object {
	t.Helper()
	meta["name"], meta["namespace"] = name, "batch"
	whole := map[string]any{
		"nodeName": n.k.Node, "dnsPolicy": "Default", "terminationGracePeriodSeconds": 1,
		"containers": []any{map[string]any{
			"name": "main", "image": parts.ImageRef, "imagePullPolicy": "Never", "command": []string{"/bin/sh", "-c", line},
		}},
	}
	maps.Copy(whole, spec)
	pod := cluster.Object{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": whole}
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

// beyond: a best-effort pod takes more memory than its batch-memory, which koordlet has made its limit. The kernel kills that one
// process, and nobody else (F2-5 of the documents).
func (n *governed) beyond(t *testing.T, others map[string]*holding) {
	t.Helper()
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
	for name, h := range others {
		n.same(t, name, h)
		if kills := n.kills(t, h.pod); kills != 0 {
			t.Errorf("the kernel has killed %d processes of %s", kills, name)
		}
	}
}

// kills are the processes of a pod's container that the kernel has killed for want of memory: oom_kill of the cgroup.
func (n *governed) kills(t *testing.T, pod cluster.Object) int {
	t.Helper()
	file := "memory.oom_control"
	if n.tree.V2() {
		file = "memory.events"
	}
	dir := filepath.Join(n.podDir(pod, "memory"), idOf(pod))
	text, err := cgroups.Read(dir, file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "oom_kill "); ok {
			count, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return count
		}
	}
	t.Fatalf("%s of %s has no oom_kill: %q", file, dir, text)
	return 0
}
