// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/workload"
)

// trap is a kernel that panics when it is asked to write to a pod of that name, or to its containers.
type trap struct {
	engine.Kernel
	evil   string
	sprung atomic.Int64
}

// Apply implements engine.Kernel.
func (k *trap) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	for i := range p {
		if strings.Contains(p[i].Target.Name, k.evil) {
			k.sprung.Add(1)
			panic("a write that went wrong")
		}
	}
	return k.Kernel.Apply(ctx, p, gen)
}

// SyncUnits implements engine.Kernel.
func (k *trap) SyncUnits(context.Context, plan.Plan, uint64) []apply.Result {
	k.sprung.Add(1)
	panic("a bus that went wrong")
}

// neighbour is a running container in a pod of its own.
func neighbour(t *testing.T, r *rig, name string) (*workload.Pod, engine.Listed) {
	t.Helper()
	dir := "/kubepods/burstable/pod" + name
	r.tree.Mkdir(t, dir+"/c")
	r.tree.Set(t, dir+"/c", "cpu.max", "200000 100000")
	ask, _ := protocol.ParsePod(map[string]string{protocol.LabelQoSClass: "LS"}, nil)
	pod := &workload.Pod{
		ID: "s-" + name, UID: name, Namespace: "default", Name: name, KubeQoS: protocol.KubeBurstable, Cgroup: dir,
		QoSCgroup: "/kubepods/burstable", Ask: ask,
	}
	c := container()
	c.ID, c.Cgroup, c.State = "c-"+name, dir+"/c", workload.StateRunning
	read := func(...*protocol.Applied) *workload.Container { return c }
	return pod, engine.Listed{Sandbox: pod.ID, Arrival: engine.Arrival{ID: c.ID, Read: read}}
}

// hooked is a mark that says that a hook server wants something, so that plans are joined.
func hooked() *protocol.Applied {
	return &protocol.Applied{Generation: 9, By: "koord-runtime-proxy/1", Set: map[string]string{"cpu.shares": "2 hook:agent"}}
}

// A pod that makes the background panic costs itself and nobody else: jobs, repair and repair's decisions go on for the others.
func TestPanicsInTheBackground(t *testing.T) {
	t.Parallel()
	k := &trap{evil: "evil"}
	r := newRig(t, 0, func(o *engine.Options) {
		k.Kernel, o.Kernel = o.Kernel, k
		o.Drift = 10 * time.Millisecond
		o.Join = func(ours, foreign plan.Plan) plan.Plan {
			if foreign[0].Target.Name == "default/worse/app" {
				panic("a decision that went wrong")
			}
			return ours
		}
	})
	r.RunPodLater(engine.Sandbox{ID: "torn", Read: func() *workload.Pod { panic("an annotation that went wrong") }})
	r.Later(func() { panic("a job that went wrong") })
	var pods []*workload.Pod
	var containers []engine.Listed
	for _, name := range []string{"evil", "worse", "good"} {
		pod, c := neighbour(t, r, name)
		if name == "worse" {
			c.Read().Applied = hooked()
		}
		pods, containers = append(pods, pod), append(containers, c)
	}
	r.Add(pods, containers)
	enginetest.Eventually(t, "repair of the good one", func() bool { return r.tree.Get(t, pods[2].Cgroup+"/c", "cpu.max.burst") == "200000" })
	enginetest.Eventually(t, "panics in repair and in jobs", func() bool { return k.sprung.Load() > 3 })
	for _, where := range []string{"default/evil", "default/worse", "sandbox torn", "background job"} {
		enginetest.Eventually(t, "problem of "+where, func() bool {
			for _, p := range r.Status().Problems {
				if p.Where == where && p.Key == "panic" {
					return true
				}
			}
			return false
		})
	}
	pod, c := neighbour(t, r, "late")
	r.RunPodLater(engine.Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }})
	r.Add([]*workload.Pod{pod}, []engine.Listed{c})
	enginetest.Eventually(t, "a pod after all that", func() bool { return r.tree.Get(t, pod.Cgroup+"/c", "cpu.max.burst") == "200000" })
}

// The loop of systemd's properties outlives a panic.
func TestPanicInUnits(t *testing.T) {
	t.Parallel()
	k := &trap{evil: "nobody"}
	r := newRig(t, 0, func(o *engine.Options) {
		k.Kernel, o.Kernel = o.Kernel, k
		s := pinnable(t)
		s.Kernel.Systemd = true
		o.Views.SetStatic(s)
	})
	for i := range 3 {
		r.Mended([]apply.Result{{Outcome: apply.Written, Setting: plan.Setting{
			Target: plan.Target{Level: plan.LevelPod, Cgroup: "/kubepods.slice/kubepods-podx.slice"}, Knob: plan.MemoryLow, Value: plan.Int(i),
		}}})
		enginetest.Eventually(t, "call to systemd", func() bool { return k.sprung.Load() == int64(i+1) })
	}
}

// A displacement that panics over one neighbour frees the CPUs of the others, and the container starts.
func TestPanicInDisplacement(t *testing.T) {
	t.Parallel()
	var joined atomic.Bool
	r := newRig(t, 0, func(o *engine.Options) {
		o.Join = func(plan.Plan, plan.Plan) plan.Plan {
			joined.Store(true)
			panic("a decision that went wrong")
		}
		o.Views.SetStatic(pinnable(t))
	})
	var pods []*workload.Pod
	var containers []engine.Listed
	for _, name := range []string{"bad", "good"} {
		pod, c := neighbour(t, r, name)
		if name == "bad" {
			c.Read().Applied = hooked()
		}
		pods, containers = append(pods, pod), append(containers, c)
	}
	r.Add(pods, containers)
	sb, c := exclusive(t, r, "own", "0-3")
	must(t, r.Create(t.Context(), sb, c, func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
	must(t, r.Start(t.Context(), sb, engine.Arrival{ID: c.ID}, 0, ""))
	if got := r.tree.Get(t, pods[1].Cgroup+"/c", "cpuset.cpus"); got != "4-7" {
		t.Errorf("the good neighbour is on %q when the container starts", got)
	}
	if !joined.Load() {
		t.Error("nothing has panicked")
	}
}

// pinnable is a machine of the rig with cpusets.
func pinnable(t *testing.T) engine.Static {
	return enginetest.New(t, "6.12").Static(t, plan.CPUSetCPUs, plan.CPUQuota, plan.CPUPeriod)
}

// exclusive is an LSR pod on CPUs of its own and its container, which is not known yet.
func exclusive(t *testing.T, r *rig, name, cpus string) (engine.Sandbox, *workload.Container) {
	t.Helper()
	dir := "/kubepods/pod" + name
	r.tree.Mkdir(t, dir+"/c")
	annotations := map[string]string{protocol.AnnotationResourceStatus: `{"cpuset":"` + cpus + `"}`}
	ask, _ := protocol.ParsePod(map[string]string{protocol.LabelQoSClass: "LSR"}, annotations)
	pod := &workload.Pod{ID: "s-" + name, UID: name, Namespace: "default", Name: name, Cgroup: dir, QoSCgroup: "/kubepods", Ask: ask}
	c := container()
	c.ID, c.Cgroup = "c-"+name, dir+"/c"
	return engine.Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}, c
}

// A container with CPUs of its own that is first seen when it starts, or when the kubelet updates it, claims them as at a creation:
// its neighbours leave, before it starts, and who comes next gets none of them.
func TestClaimAtFirstSight(t *testing.T) {
	t.Parallel()
	for name, see := range map[string]func(*testing.T, *rig, engine.Sandbox, engine.Arrival){
		"start": func(t *testing.T, r *rig, sb engine.Sandbox, a engine.Arrival) {
			must(t, r.Start(t.Context(), sb, a, 0, ""))
		},
		"update": func(t *testing.T, r *rig, sb engine.Sandbox, a engine.Arrival) {
			r.Update(t.Context(), sb, a, workload.Resources{}, nil)
			r.BeforeStart(t.Context(), a.ID) // returns when the neighbours have left
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 0, func(o *engine.Options) { o.Views.SetStatic(pinnable(t)) })
			pod, ls := neighbour(t, r, "ls")
			r.Add([]*workload.Pod{pod}, []engine.Listed{ls})
			sb, c := exclusive(t, r, "own", "0-3")
			see(t, r, sb, engine.Arrival{ID: c.ID, Read: func(...*protocol.Applied) *workload.Container { return c }})
			if got := r.Views().Load().Claims.LSR; !got.Equal(topo.Range(0, 3)) {
				t.Errorf("claimed: %q", got)
			}
			if got := r.tree.Get(t, pod.Cgroup+"/c", "cpuset.cpus"); got != "4-7" {
				t.Errorf("the neighbour is on %q", got)
			}
		})
	}
}
