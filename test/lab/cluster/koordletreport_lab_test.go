// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// reported are the reports that the API server took, in their order.
func (n *governed) reported(t *testing.T) []call {
	t.Helper()
	return n.audit.calls(t, func(c *call) bool { return c.what() == "patch nodemetrics/status" && c.Response.Code == 200 })
}

// podsOf are the pods of a NodeMetric.
func podsOf(metric cluster.Object) (pods []string) {
	list, _ := metric.At("status", "podsMetric").([]any)
	for i := range list {
		at := func(field string) string { return metric.Str("status", "podsMetric", i, field) }
		pods = append(pods, strings.Join([]string{at("namespace"), at("name"), at("qos"), at("priority")}, " "))
	}
	slices.Sort(pods)
	return pods
}

// report: what stands in the NodeMetric after the second report, or after the first that no longer counts the pods' starts in, is
// what the pods really use, and what kubectl top says.
func (n *governed) report(t *testing.T) {
	n.arrives(t)
	want := []string{
		"batch be-kept BE koord-batch", "batch be-low BE koord-batch", "batch ls LS koord-prod", "batch lsr LSR koord-prod",
		"batch plain LS koord-prod", "batch prod LS koord-prod", "batch victim LS koord-prod",
	}
	var got cluster.Object
	before := n.tops(t)
	eventually(t, 90*time.Second, func() (err error) {
		if sent := n.reported(t); len(sent) < 2 || sent[len(sent)-1].At.Before(n.back) {
			return fmt.Errorf("%d reports, want 2, one of them after the API server's return", len(sent))
		}
		if got, err = n.c.Admin().Get(t.Context(), reports+"/"+n.k.Node); err == nil && !slices.Equal(podsOf(got), want) {
			err = fmt.Errorf("pods %q, want %q", podsOf(got), want)
		}
		if free := reclaimable(got); err == nil && (free == "" || free == "0") {
			err = fmt.Errorf("%q bytes are reclaimable: nothing has been learned yet", free)
		}
		if err == nil {
			err = errors.Join(distributed(t, got), n.predicted(t, got), byClass(t, got))
		}
		if err != nil {
			return err
		}
		return errors.Join(used(t, got), n.asTopped(t, got, before))
	})
	t.Logf("NodeMetric: %s", got.Compact("status"))
	total, _ := memory(t)
	at := []any{"status", "nodeMetric", "nodeUsage", "resources"}
	cpu, used := amount(t, got.Str(append(at, "cpu")...)), amount(t, got.Str(append(at, "memory")...))
	if cpu < 0.05 || used < 192<<20 || used > total {
		t.Errorf("the node uses %.2f CPUs and %.0f bytes of memory", cpu, used)
	}
	n.documented(t, got)
	n.besides(t, got)
	byMemoryNode(t, got)
	n.topology(t)
	n.pageCache(t)
	n.remove(t, "lsr", "plain")
}

// reclaimable is the memory that production pods have asked for and will not use.
func reclaimable(metric cluster.Object) string {
	return metric.Str("status", "prodReclaimableMetric", "resource", "resources", "memory")
}

// besides: the program outside of Kubernetes uses its fifth of a CPU under its own name; of what prod has asked for, most is told
// to be free: what it does not need, less what the rest of the machine may come to need; and the peak of the class BE is what its
// two pods hold, with 10 % for safety and 5 % for the bucket in which it was counted.
func (n *governed) besides(t *testing.T, metric cluster.Object) {
	t.Helper()
	app := func(field ...any) string {
		return metric.Str(append([]any{"status", "hostApplicationMetric", 0}, field...)...)
	}
	cpu := app("usage", "resources", "cpu")
	if app("name") != "backup" || app("qos") != "BE" || app("priority") != "koord-batch" || amount(t, cpu) < 0.1 || amount(t, cpu) > 0.25 {
		t.Errorf("host application: %s", metric.Compact("status", "hostApplicationMetric"))
	}
	free := reclaimable(metric)
	asked := amount(t, n.prod.Str("spec", "containers", 0, "resources", "requests", "memory"))
	if left := amount(t, free); left <= 0 || left >= asked {
		t.Errorf("of %.0f bytes that prod has asked for, %q are reclaimable", asked, free)
	}
	const held = 64 + 128
	peak := n.figure(t, `koord_rt_koordlet_class_predicted_peak{by="qos",class="BE",resource="memory",unit="byte"}`) / mib
	if t.Logf("predicted peak of BE: %.0f MiB", peak); peak < held*1.1 || peak > (held+2*16)*1.1*1.06+5.5 {
		t.Errorf("the peak of BE, whose pods hold %d MiB, is %.0f MiB", held, peak)
	}
}

const topologies = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/"

// topology: the node's NodeResourceTopology has a zone for each memory node.
func (n *governed) topology(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	got, err := n.c.Admin().Wait(ctx, topologies+n.k.Node, "NodeResourceTopology", func(o cluster.Object) bool { return o != nil })
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := filepath.Glob("/sys/devices/system/node/node[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	zones, _ := got.At("zones").([]any)
	told := func(key string) string { return got.Str("metadata", "annotations", key) }
	if len(zones) != max(len(nodes), 1) || !strings.Contains(told("node.koordinator.sh/cpu-topology"), `"detail":[{"id":0,`) {
		t.Errorf("NodeResourceTopology: %s %s", got.Compact("zones"), got.Compact("metadata", "annotations"))
	}
	// As the kubelet was told, and says at /configz.
	const static = `{"policy":"static","options":{"distribute-cpus-across-numa":"true"},"reservedCPUs":"0"}`
	if manager := told("kubelet.koordinator.sh/cpu-manager-policy"); manager != static {
		t.Errorf("the CPU manager is told as %s, want %s", manager, static)
	}
	if policies := got.Compact("topologyPolicies"); policies != `["BestEffortPodLevel"]` {
		t.Errorf("topology policies %s", policies)
	}
	// What the kubelet keeps is kept of the zones too, because the node's label asks for it: 500m of CPU.
	free := 0.0
	for i := range zones {
		for j := range 2 {
			if got.Str("zones", i, "resources", j, "name") == "cpu" {
				free += amount(t, got.Str("zones", i, "resources", j, "allocatable"))
			}
		}
	}
	if kept := float64(runtime.NumCPU()) - free; kept < 0.499 || kept > 0.501+0.001*float64(len(zones)) {
		t.Errorf("the zones keep %.3f CPUs: %s", kept, got.Compact("zones"))
	}
	for _, source := range []string{"kubelet-options", "nodemetric-report", "nodeslo-status", "noderesourcetopology"} {
		n.sees(t, `koord_rt_koordlet_source_state\{source="`+source+`",state="active"\} 1`)
	}
}

// used compares each pod of a NodeMetric with what it does.
func used(t *testing.T, metric cluster.Object) error {
	t.Helper()
	var errs []error
	list, _ := metric.At("status", "podsMetric").([]any)
	for i := range list {
		at := []any{"status", "podsMetric", i, "podUsage", "resources"}
		cpu, memory := amount(t, metric.Str(append(at, "cpu")...)), amount(t, metric.Str(append(at, "memory")...))
		errs = append(errs, within(metric.Str("status", "podsMetric", i, "name"), cpu, memory))
	}
	return errors.Join(errs...)
}

// within: ls spins at its limit of 100m, victim for a part of the time, be-low, be-kept, lsr and plain hold memory, prod nothing.
func within(pod string, cpu, memory float64) error {
	// CPUs from, to; MiB from, to.
	want := map[string][4]float64{
		"be-low": {0, 0.05, 64, 80}, "be-kept": {0, 0.05, 128, 144}, "ls": {0.05, 0.12, 0.01, 16}, "victim": {0.01, 0.8, 0.01, 16}, "prod": {0, 0.05, 0, 16},
		"lsr": {0, 0.05, 24, 40}, "plain": {0, 0.05, 32, 48},
	}[pod]
	if memory < want[2]*mib || memory > want[3]*mib {
		return fmt.Errorf("%s uses %.1f MiB, want %g to %g", pod, memory/mib, want[2], want[3])
	}
	if cpu < want[0] || cpu > want[1] {
		return fmt.Errorf("%s uses %.3f CPUs, want %g to %g", pod, cpu, want[0], want[1])
	}
	return nil
}

// documented: the same in the spelling of the users' documents, with containers.
func (n *governed) documented(t *testing.T, metric cluster.Object) {
	t.Helper()
	list, _ := metric.At("status", "podMetrics").([]any)
	found := false
	for i := range list {
		if metric.Str("status", "podMetrics", i, "podRef", "name") != "ls" {
			continue
		}
		found = true
		main := []any{"status", "podMetrics", i, "containers", 0}
		at := func(path ...any) string { return metric.Str(append(slices.Clone(main), path...)...) }
		if at("name") != "main" || at("limit", "cpu") != "100m" {
			t.Errorf("containers of ls: %s", metric.Compact("status", "podMetrics", i))
		}
		if err := within("ls", amount(t, at("usage", "cpu")), amount(t, at("usage", "memory"))); err != nil {
			t.Errorf("the container of %v: %s", err, metric.Compact("status", "podMetrics", i))
		}
	}
	if !found {
		t.Errorf("no ls: %s", metric.Compact("status", "podMetrics"))
	}
	n.addsUp(t, metric)
	be, ls := metric.Str("status", "beMetric", "usage", "memory"), metric.Compact("status", "lsMetric", "request")
	want := amount(t, n.prod.Str("spec", "containers", 0, "resources", "requests", "memory")) + (64+24+32)*mib // and ls, lsr, plain
	if len(list) != 7 || amount(t, be) < 192<<20 || metric.Str("status", "lsMetric", "request", "cpu") != "102m" ||
		amount(t, metric.Str("status", "lsMetric", "request", "memory")) != want {
		t.Errorf("%d pods, best effort uses %s, LS requests %s, want 102m and %.0f bytes", len(list), be, ls, want)
	}
}

// addsUp: what the node uses is what BE, all other pods, host applications and the system use (C2 of the documents), but for what
// moves while it is read, and what it requests what the pods request; and of the limits those that there are (C3).
func (n *governed) addsUp(t *testing.T, metric cluster.Object) {
	t.Helper()
	for resource, most := range map[string]float64{"cpu": 0.1, "memory": 32 * mib} {
		whole := amount(t, metric.Str("status", "nodeMetric", "usage", resource))
		for _, part := range [][]any{
			{"beMetric", "usage"}, {"lsMetric", "usage"}, {"hostApplicationMetric", 0, "usage", "resources"}, {"nodeMetric", "systemUsage", "resources"},
		} {
			whole -= amount(t, metric.Str(append(append([]any{"status"}, part...), resource)...))
		}
		if math.Abs(whole) > most {
			t.Errorf("%s of the node differs by %g from the sum of its parts: %s", resource, whole, metric.Compact("status"))
		}
	}
	if err := requestsAdd(t, metric); err != nil {
		t.Error(err)
	}
	if got := metric.Compact("status", "nodeMetric", "limit"); got != `{"cpu":"100m","memory":"64Mi"}` {
		t.Errorf("limits of the node: %s", got)
	}
	list, _ := metric.At("status", "podMetrics").([]any)
	for i := range list {
		limited := metric.Str("status", "podMetrics", i, "podRef", "name") == "ls"
		if got := metric.At("status", "podMetrics", i, "containers", 0, "limit") != nil; got != limited {
			t.Errorf("limit of a container: %s", metric.Compact("status", "podMetrics", i))
		}
	}
}

// amount reads CPUs or bytes as the API writes them: 100m, 2, 1536Mi.
func amount(t *testing.T, text string) float64 {
	t.Helper()
	digits := strings.TrimRight(text, "mKMGTi")
	v, err := strconv.ParseFloat(digits, 64)
	factor, known := map[string]float64{"": 1, "m": 1e-3, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}[text[len(digits):]]
	if err != nil || !known {
		t.Fatalf("quantity %q: %v", text, err)
	}
	return v * factor
}

// beat is less than the time between two reports that are not news: 30 s, of which jitter and the reporter's pace take some.
const beat = 20 * time.Second

// topologyCheck is how often koordlet looks whether the NodeResourceTopology has changed; it tells what two looks have found.
const topologyCheck = 10 * time.Second

// writes: everything that koordlet has written since its start was an eviction, or a deletion in its place, with its event, a status that differs from the
// one before, the report of an interval, or the CPUs that pods share when one has come that has its own.
func (n *governed) writes(t *testing.T) {
	eventually(t, 90*time.Second, func() error { // on a machine with other work each report may be news
		list := n.reported(t)
		for i := 1; i < len(list) && len(list) < 5; i++ {
			if list[i].At.Sub(list[i-1].At) >= beat {
				return nil
			}
		}
		if len(list) < 5 {
			return fmt.Errorf("%d reports, none of them because its interval was over", len(list))
		}
		return nil
	})
	list := n.reported(t)
	t.Logf("%d reports, %d of them with news between two intervals", len(list), n.paced(t, list))
	before, had, moved := "", "", 0
	kinds := map[string]int{}
	wrote := func(c *call) bool {
		return !slices.Contains([]string{"get", "list", "watch"}, c.Verb) && c.Response.Code < 300 && !c.dry()
	}
	for _, c := range n.audit.calls(t, wrote) {
		kinds[c.what()]++
		switch c.what() {
		case "patch nodemetrics/status", "create pods/eviction", "create events", "delete pods":
		case "create noderesourcetopologies":
			if kinds[c.what()] > 1 {
				t.Error("the NodeResourceTopology was made twice")
			}
			had = zonesMemory(c.body(t))
		case "patch noderesourcetopologies": // the pod that has a CPU of its own, and its end
			if now := zonesMemory(c.body(t)); now != "" && now != had { // a machine whose own host gives and takes memory
				t.Logf("the memory of the zones goes from %s to %s", had, now)
				had = now
				continue
			}
			if moved++; moved > 2 || c.At.Before(n.pinnedFor.from) || c.At.After(n.pinnedTold()) {
				t.Errorf("the NodeResourceTopology was changed for the %d. time, at %s; a pod with a CPU of its own came once, at %s, and went at %s: %.600s",
					moved, c.At.Format(time.TimeOnly), n.pinnedFor.from.Format(time.TimeOnly), n.pinnedFor.to.Format(time.TimeOnly), c.Request)
			}
		case "patch nodeslos/status":
			status := c.status(t)
			if (cluster.Object{"status": map[string]any(status)}).Condition("Applied") != "True" {
				t.Errorf("every NodeSLO was in force, and koordlet says: %.600s", c.Request)
			}
			now := timeless(t, status)
			if now == before {
				t.Errorf("the NodeSLO's status was written and nothing has changed: %.600s", c.Request)
			}
			t.Logf("status of generation %d at %s: %d bytes", status.Int("observedGeneration"), c.At.Format(time.TimeOnly), len(now))
			before = now
		default:
			t.Errorf("koordlet writes: %s %s", c.what(), c.Object.Name)
		}
	}
	t.Logf("writes: %v", kinds)
	if moved < 2 {
		t.Errorf("the NodeResourceTopology was changed %d times for a pod that had a CPU of its own, want 2", moved)
	}
}

// pinnedTold is when the end of the pod that had a CPU of its own has been told at the latest: some looks later, or after the API server's return.
func (n *governed) pinnedTold() time.Time {
	end := n.pinnedFor.to.Add(3 * topologyCheck)
	for _, s := range n.away {
		if back := s.to.Add(3 * topologyCheck); s.from.Before(end) && back.After(end) {
			end = back
		}
	}
	return end
}

// zonesMemory is how much memory the zones of a NodeResourceTopology have, "" when none is told.
func zonesMemory(o cluster.Object) string {
	var out []string
	zones, _ := o.At("zones").([]any)
	for i := range zones {
		resources, _ := o.At("zones", i, "resources").([]any)
		for j := range resources {
			if o.Str("zones", i, "resources", j, "name") == "memory" {
				out = append(out, o.Str("zones", i, "resources", j, "capacity"))
			}
		}
	}
	return strings.Join(out, " ")
}

// timeless is a status without its times.
func timeless(t *testing.T, status cluster.Object) string {
	t.Helper()
	delete(status, "nodeMetric")
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			delete(m, "lastTransitionTime")
		}
	}
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// heldIn are the pods that a status names as held because they disturb others.
func heldIn(status cluster.Object) (names []string) {
	list, _ := status.At("podsMetric").([]any)
	for i := range list {
		if status.At("podsMetric", i, "extensions", "koord-rt.dev/interference", "held") != nil {
			names = append(names, status.Str("podsMetric", i, "name"))
		}
	}
	return names
}

// moved reports that some figure of the node or of a class has changed by what counts as news: 200m or 256 MiB at least, a
// little less here for what was rounded; or who is held, or how many were evicted.
func moved(t *testing.T, a, b cluster.Object) bool {
	t.Helper()
	if !slices.Equal(heldIn(a), heldIn(b)) || a.Int("evictions", "lastHour") != b.Int("evictions", "lastHour") {
		return true
	}
	for _, at := range [][]any{
		{"nodeMetric", "nodeUsage", "resources"}, {"nodeMetric", "systemUsage", "resources"}, {"nodeMetric", "request"},
		{"beMetric", "usage"}, {"beMetric", "request"}, {"lsMetric", "usage"}, {"lsMetric", "request"},
		{"prodReclaimableMetric", "resource", "resources"},
	} {
		for resource, least := range map[string]float64{"cpu": 0.19, "memory": 250 << 20} {
			path := append(slices.Clone(at), resource)
			x, y := a.Str(path...), b.Str(path...)
			if (x == "") != (y == "") || x != "" && math.Abs(amount(t, x)-amount(t, y)) > least {
				return true
			}
		}
	}
	return false
}

// allowed fails when koordlet was denied something by a server that was not starting.
func (n *governed) allowed(t *testing.T, c *call) {
	t.Helper()
	starting := slices.ContainsFunc(n.away, func(s span) bool { return c.At.After(s.from) && c.At.Before(s.to) })
	if (c.Response.Code == 401 || c.Response.Code == 403) && !starting {
		t.Errorf("koordlet was denied: %s %s at %s", c.what(), c.Object.Name, c.At.Format(time.StampMilli))
	}
}

// rights: nothing was denied by a server that was ready, and there is no right that was not used.
func (n *governed) rights(t *testing.T) {
	used := map[string]bool{}
	for _, c := range n.audit.calls(t, func(*call) bool { return true }) {
		for _, right := range c.rights() {
			used[right] = true
		}
		n.allowed(t, &c)
	}
	for _, part := range []string{"pods", "configz"} {
		used[" get nodes/"+part+" "+n.k.Node] = n.audit.granted(t, user, "get", part)
	}
	granted, err := cluster.Rights(read(t, "testdata/koordlet/install/role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, right := range granted {
		if !used[right] {
			t.Errorf("right %q was not used", right)
		}
	}
}
