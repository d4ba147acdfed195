// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// memory is what the machine has and what it could give, in bytes.
func memory(t *testing.T) (total, available float64) {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/meminfo")) {
		var name, unit string
		var kib float64
		if n, _ := fmt.Sscan(line, &name, &kib, &unit); n < 3 {
			continue
		}
		switch name {
		case "MemTotal:":
			total = kib * 1024
		case "MemAvailable:":
			available = kib * 1024
		}
	}
	if total == 0 || available == 0 {
		t.Fatal("/proc/meminfo does not tell the memory")
	}
	return total, available
}

// evict: the node is told to bear half of the memory that it uses, which no eviction here can reach. The pod of the lower
// priority goes, the other one stays as long as its budget says so, and the LS pod stays for ever.
func (n *governed) evict(t *testing.T) {
	before := n.evictedBefore(t)
	n.apply(t, "budget.yaml")
	seen, err := n.c.Admin().Disruptions(t.Context(), strings.TrimSuffix(batchPods, "/"))
	if err != nil {
		t.Fatal(err)
	}
	total, available := memory(t)
	if available < total/10 {
		t.Fatalf("%.0f of %.0f MiB are available: koordlet would take the node for one in danger", available/(1<<20), total/(1<<20))
	}
	half := max(1, int((total-available-listed(t))/total*50))
	n.patch(t, threshold(map[string]any{
		"enable": true, "cpuSuppressPolicy": "cfsQuota", "memoryEvictThresholdPercent": half, "memoryEvictLowerPercent": half - 1,
	}))
	n.gone(t, "be-low")
	eventually(t, 20*time.Second, func() error { // the watch may come after the pod has gone
		if got := seen(); !slices.Contains(got, cluster.Disruption{Name: "be-low", UID: n.be.Str("metadata", "uid"), Reason: cluster.Evicted}) {
			return fmt.Errorf("be-low did not carry the condition of an eviction; seen: %+v", got)
		}
		return nil
	})
	// Nobody keeps the budget's status here: the API server refuses until it has been brought up to date.
	eventually(t, 30*time.Second, func() error { return n.told(t, "be-kept", "EvictionRefused", "Normal", "BEMemoryEvict") })
	eventually(t, 20*time.Second, func() error { return n.told(t, "be-low", "Evicted", "Warning", "BEMemoryEvict") })
	n.sees(t, `koord_rt_koordlet_evictions_total\{feature="BEMemoryEvict",outcome="refused"\} [1-9]\d*`)
	n.untouched(t, "be-kept")
	// As the disruption controller would.
	allowed := map[string]any{"status": map[string]any{
		"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
	}}
	if _, err := n.c.Admin().Patch(t.Context(), budgets+"kept/status", cluster.MergePatch, allowed); err != nil {
		t.Fatal(err)
	}
	n.gone(t, "be-kept")
	n.asked(t)
	n.untouched(t, "ls")
	n.patch(t, threshold(map[string]any{"enable": false}))
	n.inForce(t)
	// The cluster is told without waiting for the next interval, and of what koordlet has stopped in an earlier life as well.
	promptly(t, 25*time.Second, func() error {
		o, err := n.c.Admin().Get(t.Context(), reports+"/"+n.k.Node)
		if got := o.Int("status", "evictions", "lastHour"); err == nil && got != before+2 {
			err = fmt.Errorf("%d evictions are reported, want %d and 2", got, before)
		}
		return err
	})
}

// evictedBefore is how many pods koordlet's audit says to have ended by now, in the lives before this one too. A pod whose containers were
// stopped counts where the API server could not be told.
func (n *governed) evictedBefore(t *testing.T) (count int) {
	t.Helper()
	list, err := n.evictions(t, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Want == "accepted" || e.Want == "stopped" && e.Err != "" {
			t.Logf("before: %s %s", e.Want, e.Target.Name)
			count++
		}
	}
	return count
}

const budgets = "/apis/policy/v1/namespaces/batch/poddisruptionbudgets/"

// gone waits until the API server does not have the pod any more.
func (n *governed) gone(t *testing.T, name string) {
	t.Helper()
	n.wait(t, name, "gone", func(p cluster.Object) bool { return p == nil })
}

// untouched fails unless the pod runs and nobody has deleted it.
func (n *governed) untouched(t *testing.T, name string) {
	t.Helper()
	pod := n.ready(t, name)
	if pod.Str("metadata", "deletionTimestamp") != "" || pod.Condition("DisruptionTarget") != "" {
		t.Errorf("%s is to go: %s", name, pod.Compact("status", "conditions"))
	}
}

// told looks for koordlet's event about a pod, which names the feature that it goes by: CPUEvict is not BECPUEvict.
func (n *governed) told(t *testing.T, pod, reason, kind, feature string) error {
	t.Helper()
	list, err := n.c.Admin().Items(t.Context(), "/apis/events.k8s.io/v1/namespaces/batch/events")
	if err != nil {
		return err
	}
	var all []string
	for _, e := range list {
		if e.Str("reportingController") != "koord-rt.dev/koordlet" {
			continue
		}
		about := e.Str("regarding", "name") == pod && e.Str("reason") == reason
		if about && e.Str("type") == kind && slices.Contains(strings.FieldsFunc(e.Str("note"), notInName), feature) {
			return nil
		}
		all = append(all, e.Str("type")+" "+e.Str("reason")+" "+e.Str("regarding", "name")+": "+e.Str("note"))
	}
	return fmt.Errorf("no event %s about %s; koordlet's events: %q", reason, pod, all)
}

// notInName is what stands between the names of features.
func notInName(r rune) bool { return !unicode.IsLetter(r) }

// asked: the evictions came in the order of the priorities, each for exactly the pod that was meant and with its own grace period, 30 s at most, and the
// one that was refused was not asked for again before the time that the API server had named.
func (n *governed) asked(t *testing.T) {
	t.Helper()
	uids := map[string]string{}
	for _, pod := range []cluster.Object{n.be, n.top} {
		uids[pod.Str("metadata", "name")] = pod.Str("metadata", "uid")
	}
	var got []string
	var refused time.Time
	for _, c := range n.audit.calls(t, func(c *call) bool { return c.what() == "create pods/eviction" }) {
		if uid := c.body(t).Str("deleteOptions", "preconditions", "uid"); uid == "" || uid != uids[c.Object.Name] {
			t.Errorf("eviction of %s for UID %q, want %q", c.Object.Name, uid, uids[c.Object.Name])
		}
		grace := map[string]any{"be-low": 1.0, "be-kept": 30.0}[c.Object.Name] // by pods.yaml 1 and 40
		if got := c.body(t).At("deleteOptions", "gracePeriodSeconds"); got != grace {
			t.Errorf("eviction of %s with a grace period of %v s, want %v", c.Object.Name, got, grace)
		}
		if pause := c.At.Sub(refused); !refused.IsZero() && c.Object.Name == "be-kept" && pause < 9*time.Second {
			t.Errorf("be-kept was asked for again %s after the refusal, which named 10 s", pause)
		}
		if c.Response.Code == 429 {
			refused = c.At
		}
		if line := fmt.Sprintf("%s %d", c.Object.Name, c.Response.Code); len(got) == 0 || got[len(got)-1] != line {
			got = append(got, line) // how often it was refused is the machine's pace
		}
	}
	if want := []string{"be-low 201", "be-kept 429", "be-kept 201"}; !slices.Equal(got, want) {
		t.Errorf("evictions %q, want %q", got, want)
	}
}
