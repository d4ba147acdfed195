// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// seen is a kernel that keeps what it is asked for.
type seen struct {
	wishes
	asked plan.Plan
}

// Apply implements Kernel.
func (k *seen) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	k.asked = append(k.asked, p...)
	return k.wishes.Apply(ctx, p, gen)
}

func (k *seen) has(t plan.Target, knob plan.Knob, value int64) bool {
	s := k.asked.Find(t, knob, "")
	return s != nil && s.Value == plan.Int(value)
}

// bursting is an engine whose strategy wants no burst, on a machine where an earlier life has left some. It does not run.
func bursting(t *testing.T, list ...apply.Standing) (*Engine, *seen) {
	t.Helper()
	m, err := metrics.NewEngine(prometheus.NewRegistry(), "test")
	if err != nil {
		t.Fatal(err)
	}
	static := Static{Name: "n", Topology: &topo.Topology{}, Kernel: node.Kernel{Major: 6, Minor: 12, Cgroup: node.CgroupV2}}
	static.Kernel.Knobs[plan.CPUBurst].OK, static.Kernel.Knobs[plan.CPUQuota].OK = true, true
	cfg, k, past := config.Default().Node, &seen{}, NewPast(nil)
	past.Keep(list)
	return New(Options{
		Config: cfg, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: m, Edge: noMark{}, Journal: nowhere{}, Kernel: k,
		Views: NewViews(cfg, static, nil, "test"), Past: past,
	}), k
}

func leftOf(t plan.Target, k plan.Knob, value, before int64, by string) apply.Standing {
	return apply.Standing{ID: plan.ID{Target: t, Knob: k}, Value: plan.Int(value), By: by, Original: plan.Int(before), Known: true}
}

// A burst that an earlier life has left on a pod would make the kubelet's resize below it fail, whoever tells of the resize: the
// pod's own event, or, with older runtimes, the container's.
func TestLeftBurstMakesWayForAResize(t *testing.T) {
	t.Parallel()
	pod := lsr("one")
	burst := leftOf(pod.Target(), plan.CPUBurst, 50000, 0, protocol.FeatureBurst.String())
	sandbox := Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}
	c := workload.Container{ID: "c1", Name: "app", State: workload.StateRunning, Cgroup: pod.Cgroup + "/c1"}
	c.Base.Quota = unit.Some(100000)
	arrival := Arrival{ID: c.ID, Read: func(...*protocol.Applied) *workload.Container { one := c; return &one }}
	for name, resize := range map[string]func(*Engine){
		"the pod's": func(g *Engine) { g.UpdatePod(t.Context(), sandbox, workload.Resources{Quota: unit.Some(20000)}) },
		"the container's": func(g *Engine) {
			g.Update(t.Context(), sandbox, arrival, workload.Resources{Quota: unit.Some(20000)}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, k := bursting(t, burst)
			g.Synchronize([]*workload.Pod{pod}, []Listed{{Sandbox: pod.ID, Arrival: arrival}})
			resize(g)
			if !k.has(pod.Target(), plan.CPUBurst, 0) {
				t.Errorf("asked of the kernel:\n%s", k.asked)
			}
		})
	}
}

// What is left of an earlier life is given back once. What a hook server wanted stays, and so does what is the node agent's.
func TestLeftIsGivenBack(t *testing.T) {
	t.Parallel()
	pod, qos := lsr("one"), plan.Target{Level: plan.LevelQoS, Cgroup: "/kubepods"}
	list := []apply.Standing{
		leftOf(pod.Target(), plan.CPUBurst, 50000, 7, protocol.FeatureBurst.String()),
		leftOf(pod.Target(), plan.CPUQuota, 50000, 60000, plan.HookPrefix+"other"),
		leftOf(qos, plan.CPUQuota, 50000, 60000, protocol.FeatureBatch.String()),
		leftOf(qos, plan.MemoryLow, 4096, 0, protocol.FeatureMemory.String()),
	}
	for name, tell := range map[string]func(*Engine){
		"the runtime's list":   func(g *Engine) { g.Synchronize([]*workload.Pod{pod}, nil) },
		"what a list has more": func(g *Engine) { g.Add([]*workload.Pod{pod}, nil) }, // as koordlet hears of pods
	} {
		g, k := bursting(t, list...)
		tell(g)
		g.repairAll(t.Context(), false, true)
		if len(k.asked) != 2 || !k.has(pod.Target(), plan.CPUBurst, 7) || !k.has(qos, plan.MemoryLow, 0) {
			t.Errorf("%s: asked of the kernel:\n%s", name, k.asked)
		}
		k.asked = nil
		tell(g)
		g.repairAll(t.Context(), true, true)
		if len(k.asked) != 0 {
			t.Errorf("%s: given back again:\n%s", name, k.asked)
		}
	}
}

// Beside another program that writes first, what is left is that one's to give back: it may be what it wants.
func TestLeftIsOfWhoWritesFirst(t *testing.T) {
	t.Parallel()
	pod := lsr("one")
	g, k := bursting(t, leftOf(pod.Target(), plan.CPUBurst, 50000, 7, protocol.FeatureBurst.String()))
	g.o.Beside = func() bool { return true }
	g.Add([]*workload.Pod{pod}, nil)
	g.repairAll(t.Context(), false, true)
	if len(k.asked) != 0 {
		t.Errorf("asked of the kernel:\n%s", k.asked)
	}
}

// refuser is a kernel that refuses so many plans.
type refuser struct {
	seen
	refuse int
}

// Apply implements Kernel.
func (k *refuser) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	out := k.seen.Apply(ctx, p, gen)
	if k.refuse--; k.refuse >= 0 {
		for i := range out {
			out[i].Outcome, out[i].Err = apply.Failed, errors.New("no space left")
		}
	}
	return out
}

// What could not be given back is given back by a later pass: of a QoS directory, with what stood there before, and of a pod that was
// settled.
func TestLeftIsGivenBackAgain(t *testing.T) {
	t.Parallel()
	pod, qos := lsr("one"), plan.Target{Level: plan.LevelQoS, Cgroup: "/kubepods"}
	g, _ := bursting(t, leftOf(qos, plan.MemoryLow, 4096, 512, protocol.FeatureMemory.String()))
	k := &refuser{}
	g.o.Kernel = k
	g.Synchronize([]*workload.Pod{pod}, nil)
	for pass := range 4 {
		k.asked, k.refuse = nil, 0
		if pass < 2 {
			k.refuse = 1
		}
		g.repairAll(t.Context(), true, true)
		if asked := k.has(qos, plan.MemoryLow, 512); asked != (pass < 3) {
			t.Errorf("pass %d: asked of the kernel:\n%s", pass, k.asked)
		}
	}
	g, _ = bursting(t, leftOf(pod.Target(), plan.CPUBurst, 50000, 7, protocol.FeatureBurst.String()))
	k = &refuser{refuse: 1}
	g.o.Kernel = k
	g.Synchronize([]*workload.Pod{pod}, nil)
	g.unsettled.pods = map[string]struct{}{pod.ID: {}}
	g.unsettled.busy = map[string]chan struct{}{}
	for pass := range 3 {
		k.asked = nil
		if pass == 0 {
			g.settle(t.Context(), pod.ID)
		} else {
			g.repairAll(t.Context(), true, true)
		}
		if asked := k.has(pod.Target(), plan.CPUBurst, 7); asked != (pass < 2) {
			t.Errorf("pod, pass %d: asked of the kernel:\n%s", pass, k.asked)
		}
	}
}

// What an earlier life has left on a container is given back also where that is no part of the first list.
func TestLeftOnAContainerThatIsAdded(t *testing.T) {
	t.Parallel()
	pod := lsr("one")
	ctr := listed(pod)
	target := ctr.Read().Target(pod)
	g, k := bursting(t, leftOf(target, plan.CPUBurst, 50000, 0, protocol.FeatureBurst.String()))
	g.Add([]*workload.Pod{pod}, []Listed{ctr})
	g.repairAll(t.Context(), false, true)
	if !k.has(target, plan.CPUBurst, 0) {
		t.Errorf("asked of the kernel:\n%s", k.asked)
	}
}
