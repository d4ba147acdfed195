// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// stop: the memory is all but used up, as a /proc/meminfo and /proc/zoneinfo of koordlet's own tell it, and the API server is away. With
// stopContainers: danger the containers of the victims are stopped by the runtime, what that has brought is told, and the kubelet
// starts them again: nobody has deleted their pods. The LS pod runs on.
func (n *governed) stop(t *testing.T) {
	available, back := n.ownMemory(t, `"evict":{"stopContainers":"danger"}`)
	n.patch(t, threshold(map[string]any{"enable": true, "memoryEvictThresholdPercent": 90, "memoryEvictLowerPercent": 89}))
	n.inForce(t)
	before := map[string]int{}
	for _, name := range []string{"ls", "be-low", "be-kept"} {
		before[name] = restarts(n.ready(t, name))
	}
	n.serverEnds(t)
	n.unheard(t)
	since := time.Now()
	available(0.02)
	eventually(t, 60*time.Second, func() error {
		word, err := n.released(t, since, "be-low", "stopped")
		if err == nil {
			t.Log(word)
		}
		return err
	})
	available(0.5)
	n.serverStarts(t)
	for name, count := range before {
		pod := n.wait(t, name, "ready again", func(p cluster.Object) bool {
			return p.Condition("Ready") == "True" && (name != "be-low" || restarts(p) > count)
		})
		if pod.Str("metadata", "deletionTimestamp") != "" || name == "ls" && restarts(pod) != count {
			t.Errorf("%s: %d restarts, before %d: %s", name, restarts(pod), count, pod.Compact("metadata", "deletionTimestamp"))
		}
	}
	back()
	n.be, n.top, n.ls = n.ready(t, "be-low"), n.ready(t, "be-kept"), n.ready(t, "ls")
	n.up(t)
}

// ownMemory starts koordlet again with a /proc/meminfo and a /proc/zoneinfo of its own and with more configuration: available says what
// part of the memory there is, and back starts it as it was.
func (n *governed) ownMemory(t *testing.T, more string) (available func(part float64), back func()) {
	t.Helper()
	total, _ := memory(t)
	meminfo, zoneinfo, config := filepath.Join(n.dir, "meminfo"), filepath.Join(n.dir, "zoneinfo"), filepath.Join(n.dir, "koordlet.yaml")
	available = func(part float64) {
		t.Helper()
		var out []string
		for line := range strings.Lines(read(t, "/proc/meminfo")) {
			key, _, _ := strings.Cut(line, ":")
			if key == "MemAvailable" || key == "MemFree" {
				line = fmt.Sprintf("%s: %d kB\n", key, int(total*part/1024))
			}
			out = append(out, line)
		}
		if err := os.WriteFile(meminfo, []byte(strings.Join(out, "")), 0o600); err != nil { // the same file, which is bound
			t.Fatal(err)
		}
	}
	available(0.5)
	if err := os.WriteFile(zoneinfo, []byte("Node 0, zone   Normal\n  pagesets\n    cpu: 0\n              count:    0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	was := read(t, config)
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure(strings.TrimSuffix(strings.TrimSpace(was), "}") + "," + more + "}")
	n.agent.end(t)
	n.births = append(n.births, time.Now())
	n.agent = startProgram(n.outer, filepath.Join(n.dir, "koordlet.log"), "unshare", "-m", "sh", "-c",
		`mount --bind "$1" /proc/meminfo && mount --bind "$4" /proc/zoneinfo && exec "$2" --config "$3"`, "sh", meminfo, bin("koordlet"), config, zoneinfo)
	const heard = `koord_rt_koordlet_source_state\{source="nodeslo",state="active"\} 1`
	n.sees(t, heard)
	return available, func() {
		t.Helper()
		n.agent.end(t)
		configure(was)
		n.reborn()
		n.sees(t, heard)
	}
}

// danger: the memory is all but used up, as in stop, and the API server is there. The budget's no comes first and does not hold: the very
// pod is deleted, with five seconds to end, as it would have been by the eviction. It is the only one that may go for want of memory.
func (n *governed) danger(t *testing.T) {
	available, back := n.ownMemory(t, `"evict":{"stopContainers":"never"}`)
	n.patch(t, threshold(map[string]any{"enable": true, "memoryEvictThresholdPercent": 90, "memoryEvictLowerPercent": 89}))
	n.inForce(t)
	before := restarts(n.ready(t, "ls"))
	for again := range 2 {
		asked := n.doom(t, available)
		const eviction, deletion = "create pods/eviction its own 5 s: ", "delete pods its own 5 s: 200"
		got := excused(t, asked, eviction+undecided)
		if again == 0 && len(got) < len(asked) && slices.Equal(got, []string{deletion}) {
			continue // it was deleted past the webhook, as it should be, and its budget was not asked
		}
		if want := []string{eviction + "429", deletion}; !slices.Equal(got, want) {
			t.Errorf("calls about doomed (UID, grace: answer) %q, want %q", asked, want)
		}
		break
	}
	eventually(t, 20*time.Second, func() error { return n.told(t, "doomed", "Evicted", "Warning", "BEMemoryEvict") })
	n.untouched(t, "ls")
	if count := restarts(n.ready(t, "ls")); count != before {
		t.Errorf("ls: %d restarts, before %d", count, before)
	}
	n.patch(t, threshold(map[string]any{"enable": nil, "memoryEvictThresholdPercent": nil, "memoryEvictLowerPercent": nil}))
	n.inForce(t)
	back()
	n.up(t)
}

// doom makes the pod of the budget, waits until it has gone for want of memory, and returns what koordlet has asked about it.
func (n *governed) doom(t *testing.T, available func(part float64)) (asked []string) {
	t.Helper()
	n.apply(t, "doomed.yaml")
	allowed := map[string]any{"status": map[string]any{
		"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
	}}
	if _, err := n.c.Admin().Patch(t.Context(), budgets+"doomed/status", cluster.MergePatch, allowed); err != nil {
		t.Fatal(err)
	}
	own := n.ready(t, "doomed").Str("metadata", "uid")
	n.sees(t, `koord_rt_koordlet_pod_memory_bytes\{[^}]*pod_uid="`+own+`"[^}]*\} .*`)
	since := time.Now()
	available(0.02)
	n.gone(t, "doomed")
	available(0.5)
	who := user
	if n.bound {
		who = cluster.AgentUser
	}
	for _, c := range n.audit.read(t, func(c *call) bool { return c.User.Name == who && c.Object.Name == "doomed" && c.At.After(since) }) {
		options := c.body(t)
		if c.Verb == "create" {
			options, _ = options.At("deleteOptions").(map[string]any)
		}
		uid := options.Str("preconditions", "uid")
		if uid == own {
			uid = "its own"
		}
		asked = append(asked, fmt.Sprintf("%s %s %d s: %s", c.what(), uid, options.Int("gracePeriodSeconds"), c.answer()))
	}
	return asked
}

// restarts of the pod's container.
func restarts(pod cluster.Object) int {
	return pod.Int("status", "containerStatuses", 0, "restartCount")
}

// audited is one event of koordlet's own audit, or a record of its ledger.
type audited struct {
	Knob, Want, Reason, Err string
	Via, Found, Source      string
	Target                  struct{ Name string }
}

// evictions are the steps of evictions by koordlet's own audit.
func (n *governed) evictions(t *testing.T, since time.Time) ([]audited, error) {
	t.Helper()
	return n.events(t, since, "eviction")
}

// events are what koordlet tells of a knob at /events.
func (n *governed) events(t *testing.T, since time.Time, knob string) ([]audited, error) {
	t.Helper()
	body, err := n.asks(t, "http://koordlet/events?size=512&since="+since.UTC().Format(time.RFC3339Nano), http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, err
	}
	var answer struct{ Events []audited }
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("events: %w: %.300s", err, body)
	}
	return slices.DeleteFunc(answer.Events, func(e audited) bool { return e.Knob != knob }), nil
}

// released looks for the audit's word that a pod was stopped, or is gone, with what that has released.
func (n *governed) released(t *testing.T, since time.Time, pod, how string) (word string, err error) {
	t.Helper()
	list, err := n.evictions(t, since)
	if err != nil {
		return "", err
	}
	var all []string
	for _, e := range list {
		if e.Target.Name == "batch/"+pod && e.Want == how && strings.Contains(e.Reason, "promised ") {
			return e.Reason + "; the API server: " + e.Err, nil
		}
		all = append(all, e.Want+" "+e.Target.Name+": "+e.Reason+"; "+e.Err)
	}
	return "", fmt.Errorf("%s is not %s: %q", pod, how, all)
}
