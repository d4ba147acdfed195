// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/drift"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// wishes is a kernel that keeps what it is asked to hold above pods.
type wishes struct {
	above   []string
	refuses string // a directory that it fails to write to
}

// Apply implements Kernel.
func (w *wishes) Apply(_ context.Context, p plan.Plan, _ uint64) []apply.Result {
	out := make([]apply.Result, len(p))
	for i := range p {
		out[i] = apply.Result{Setting: p[i], Outcome: apply.Written}
		if p[i].Target.Cgroup == w.refuses {
			out[i].Outcome, out[i].Err = apply.Failed, errors.New("refused")
		}
		if s := &p[i]; s.Target.Level == plan.LevelQoS && s.Knob == plan.MemoryMin {
			w.above = append(w.above, fmt.Sprintf("%s %s", s.Target.Cgroup, s.Value))
		}
	}
	return out
}

// Verify implements Kernel.
func (*wishes) Verify(plan.Plan) []apply.Mismatch { return nil }

// SyncUnits implements Kernel.
func (*wishes) SyncUnits(context.Context, plan.Plan, uint64) []apply.Result { return nil }

// Sources implements Kernel.
func (*wishes) Sources(context.Context, []apply.Stray) []drift.Source { return nil }

// Forget implements Kernel.
func (*wishes) Forget(...plan.Target) error { return nil }

// Last implements Kernel.
func (*wishes) Last(plan.ID) (plan.Value, bool) { return plan.Value{}, false }

// taken is what was asked for since the last call, in order of the directories.
func (w *wishes) taken() []string {
	out := w.above
	w.above = nil
	slices.Sort(out)
	return out
}

type nowhere struct{}

// Append implements journal.Journal.
func (nowhere) Append(...journal.Record) error { return nil }

type noMark struct{}

// Mark implements Edge.
func (noMark) Mark(*node.View, plan.Plan, *workload.Container) *protocol.Applied { return nil }

// protector is an engine on a node whose LSR pods protect half of their limit. It does not run: the test calls its passes.
func protector(t *testing.T, past *Past, leave func() (bool, *Past)) (*Engine, *wishes) {
	t.Helper()
	spec, err := strategy.Parse([]byte("resourceQOSStrategy: {lsrClass: {memoryQOS: {enable: true, minLimitPercent: 50}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := metrics.NewEngine(prometheus.NewRegistry(), "test")
	if err != nil {
		t.Fatal(err)
	}
	static := Static{Name: "n", Topology: &topo.Topology{}, Kernel: node.Kernel{Major: 6, Minor: 12, Cgroup: node.CgroupV2}}
	static.Kernel.Knobs[plan.MemoryMin].OK = true
	cfg := config.Default().Node
	k := &wishes{}
	return New(Options{
		Config: cfg, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: m, Edge: noMark{}, Journal: nowhere{}, Kernel: k,
		Views: NewViews(cfg, static, &spec, "test"), Past: past, Leave: leave,
	}), k
}

// pastOf is a ledger in which directories were written to.
func pastOf(dirs ...string) *Past {
	var records []journal.Record
	for _, d := range dirs {
		records = append(records, journal.Record{
			Target: plan.Target{Level: plan.LevelQoS, Cgroup: d}, Knob: plan.MemoryMin.String(), Want: "7", Via: journal.ViaDirect,
		})
	}
	return NewPast(records)
}

func lsr(name string) *workload.Pod {
	return &workload.Pod{
		ID: name, UID: name, Namespace: "default", Name: name, KubeQoS: protocol.KubeGuaranteed, Cgroup: "/kubepods/pod" + name,
		QoSCgroup: "/kubepods", Base: workload.Resources{MemoryLimit: unit.Some(1 << 20)},
	}
}

// below is lsr in the directory of a QoS class.
func below(name, dir string) *workload.Pod {
	p := lsr(name)
	p.Cgroup, p.QoSCgroup = dir+"/pod"+name, dir
	return p
}

// What an earlier life or another writer has left stands until the runtime has told its pods; then the sums are known.
func TestAncestorsWaitForTheList(t *testing.T) {
	t.Parallel()
	g, k := protector(t, pastOf("/kubepods", "/kubepods/burstable"), nil)
	g.repairAll(t.Context(), true, true)
	if got := k.taken(); len(got) > 0 {
		t.Errorf("before the list: %q", got)
	}
	g.Synchronize([]*workload.Pod{lsr("one"), lsr("two")}, nil)
	g.repairAll(t.Context(), true, true)
	if diff := cmp.Diff([]string{"/kubepods 1048576", "/kubepods/burstable 0"}, k.taken()); diff != "" {
		t.Errorf("with two pods (-want +got):\n%s", diff)
	}
	g.Synchronize(nil, nil)
	g.repairAll(t.Context(), true, true)
	if diff := cmp.Diff([]string{"/kubepods 0"}, k.taken()); diff != "" { // the other has been given back already
		t.Errorf("without pods (-want +got):\n%s", diff)
	}
}

// A directory that carries nothing of ours any more is the kubelet's: what its MemoryQoS writes there is neither undone nor taken for ours.
// One that could not be given back is ours until it is, and so is the root of all pods above it.
func TestAncestorsAreGivenBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuses string
		later   []string
	}{
		"given back":             {"", nil},
		"refused":                {"/kubepods", []string{"/kubepods 0", "/kubepods/burstable 0"}},
		"refused in a part":      {"/kubepods/burstable", []string{"/kubepods 0", "/kubepods/burstable 0"}},
		"refused somewhere else": {"/lab", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, k := protector(t, nil, nil)
			g.Synchronize([]*workload.Pod{below("one", "/kubepods/burstable")}, nil)
			g.repairAll(t.Context(), true, true)
			if !g.OwnsMemoryMin("/kubepods") || !g.OwnsMemoryMin("/kubepods/burstable") {
				t.Error("sums of ours are not ours")
			}
			k.taken()
			k.refuses = c.refuses
			g.Synchronize(nil, nil)
			g.repairAll(t.Context(), true, true)
			if diff := cmp.Diff([]string{"/kubepods 0", "/kubepods/burstable 0"}, k.taken()); diff != "" {
				t.Errorf("without the pod (-want +got):\n%s", diff)
			}
			k.refuses = ""
			if owns := g.OwnsMemoryMin("/kubepods"); owns != (c.later != nil) {
				t.Errorf("owns memory.min of the root of all pods: %v", owns)
			}
			g.repairAll(t.Context(), true, true)
			if diff := cmp.Diff(c.later, k.taken()); diff != "" {
				t.Errorf("later (-want +got):\n%s", diff)
			}
		})
	}
}

// A part that a repair has put into the sums leaves them as well when the pod's own settlement is the next to look, also behind another
// list of the runtime; that of a pod that has ended does even where it was read before it had a part.
func TestPartLeavesTheSums(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leaves func(*Engine, *workload.Pod)
	}{
		"its end": {func(g *Engine, pod *workload.Pod) { g.StopPod(pod.ID) }},
		"its end behind a list": {func(g *Engine, pod *workload.Pod) {
			g.Synchronize([]*workload.Pod{pod}, nil)
			g.StopPod(pod.ID)
		}},
		"its limit": {func(g *Engine, pod *workload.Pod) {
			g.UpdatePod(t.Context(), Sandbox{ID: pod.ID}, workload.Resources{})
			g.settleSoon(pod.ID)
		}},
		"its limit behind a list": {func(g *Engine, pod *workload.Pod) {
			same := *pod
			same.Base = workload.Resources{}
			g.Synchronize([]*workload.Pod{&same}, nil)
			g.settleSoon(pod.ID)
		}},
		"its end, read before": {func(g *Engine, pod *workload.Pod) {
			g.StopPod(pod.ID)
			read, _ := g.reg.pod(pod.ID)
			read.minAbove = 0
			g.unsettled.pods = nil
			if g.carries(pod.ID, &read) {
				g.settleAncestors(t.Context(), g.views.Load())
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, k := protector(t, nil, nil)
			pod := lsr("one")
			g.Synchronize([]*workload.Pod{pod}, nil)
			g.repairAll(t.Context(), true, true)
			g.drain()
			if diff := cmp.Diff([]string{"/kubepods 524288"}, k.taken()); diff != "" {
				t.Fatalf("with the pod (-want +got):\n%s", diff)
			}
			c.leaves(g, pod)
			g.drain()
			if diff := cmp.Diff([]string{"/kubepods 0"}, k.taken()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The sums stay while another writer lives; the last one takes back its own and what the others have left.
func TestLeave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leave func() (bool, *Past)
		want  []string
	}{
		"alone":        {nil, []string{"/kubepods 0", "/kubepods/burstable 0"}},
		"another":      {func() (bool, *Past) { return true, nil }, nil},
		"the last":     {func() (bool, *Past) { return false, pastOf("/kubepods", "/kubepods/besteffort") }, []string{"/kubepods 0", "/kubepods/besteffort 0", "/kubepods/burstable 0"}},
		"nothing left": {func() (bool, *Past) { return false, nil }, []string{"/kubepods 0", "/kubepods/burstable 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, k := protector(t, pastOf("/kubepods/burstable"), c.leave)
			g.Synchronize([]*workload.Pod{lsr("one"), below("two", "/kubepods/burstable")}, nil)
			g.repairAll(t.Context(), false, true)
			k.taken()
			g.leave(t.Context())
			if diff := cmp.Diff(c.want, k.taken()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
