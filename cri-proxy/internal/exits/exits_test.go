// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package exits_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/exits"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/proxy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/beside"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/workload"
)

const parent = "/kubepods/podu"

// rig is an engine that writes nothing, because a plugin is beside it, on a fake kernel.
type rig struct {
	*engine.Engine
	*exits.Watch
	tree  *kerneltest.Tree
	asked atomic.Pointer[func(id string) (bool, error)]
}

func newRig(t *testing.T, kernel string) *rig {
	t.Helper()
	m := enginetest.New(t, kernel, parent)
	r := &rig{tree: m.Tree}
	covered := func() bool { return true }
	o := m.Options(t, config.DefaultProxy().Node, proxy.Edge{}, "cpuBurstStrategy: {policy: none}\n")
	o.Kernel, o.Beside = &beside.Yield{Kernel: o.Kernel, Covered: covered}, covered
	o.Drift, o.ExitsUntold = 10*time.Millisecond, true
	r.Engine = engine.New(o)
	r.Watch = exits.New(exits.Options{Engine: r.Engine, Files: m.Files, Every: time.Millisecond, Ended: func(_ context.Context, id string) (bool, error) {
		if f := r.asked.Load(); f != nil {
			return (*f)(id)
		}
		return false, nil
	}})
	enginetest.Run(t, r.Engine)
	return r
}

// lsr is a pod whose container claims CPUs 0 and 1.
func (r *rig) lsr(t *testing.T, containers ...string) {
	t.Helper()
	ask, problems := protocol.ParsePod(map[string]string{protocol.LabelQoSClass: "LSR"}, map[string]string{
		protocol.AnnotationResourceStatus: `{"cpuset":"0-1"}`,
	})
	pod := &workload.Pod{ID: "s", UID: "u", Namespace: "default", Name: "web", Cgroup: parent, KubeQoS: protocol.KubeGuaranteed, Ask: ask, Problems: problems}
	var list []engine.Listed
	for _, id := range containers {
		c := &workload.Container{ID: id, Name: id, Cgroup: parent + "/" + id, State: workload.StateRunning}
		list = append(list, engine.Listed{Sandbox: "s", Arrival: engine.Arrival{ID: id, Read: func(...*protocol.Applied) *workload.Container { return c }}})
	}
	r.Add([]*workload.Pod{pod}, list)
}

func (r *rig) claimed() string { return r.Views().Load().Claims.LSR.String() }

func (r *rig) state(id string) workload.State {
	_, c, _ := r.Known(id)
	return c.State
}

// live makes a cgroup with a process; below, where given, has the process instead.
func (r *rig) live(t *testing.T, id, below string) {
	t.Helper()
	r.tree.Mkdir(t, parent+"/"+id)
	if below != "" {
		r.tree.Mkdir(t, parent+"/"+id+below)
	} else {
		r.tree.SetProcs(t, parent+"/"+id, 4711)
	}
	if r.tree.Version == node.CgroupV2 {
		r.tree.Set(t, parent+"/"+id, "cgroup.events", "populated 1\nfrozen 0")
	}
}

// A container that ends by itself gives its CPUs back although the plugin keeps the kernel, whether the runtime leaves its
// cgroup behind or not.
func TestExitsBesideThePlugin(t *testing.T) {
	t.Parallel()
	for _, kernel := range []string{"6.12", "v1"} {
		for _, removed := range []bool{true, false} {
			r := newRig(t, kernel)
			r.lsr(t, "c1", "c2", "c3")
			r.live(t, "c1", "")
			r.live(t, "c2", "")
			r.live(t, "c3", "/init.scope")
			if unseen := r.Look(); len(unseen) > 0 || r.claimed() != "0-1" {
				t.Fatalf("%s: unseen %v, claimed %q", kernel, unseen, r.claimed())
			}
			for _, id := range []string{"c1", "c2"} {
				switch {
				case removed:
					r.tree.Rmdir(t, parent+"/"+id)
				case r.tree.Version == node.CgroupV2:
					r.tree.Set(t, parent+"/"+id, "cgroup.events", "populated 0\nfrozen 0")
				default:
					r.tree.SetProcs(t, parent+"/"+id)
				}
			}
			if unseen := r.Look(); len(unseen) > 0 {
				t.Errorf("%s: unseen %v", kernel, unseen)
			}
			if r.state("c1") != workload.StateStopped || r.state("c2") != workload.StateStopped || r.state("c3") != workload.StateRunning || r.claimed() != "0-1" {
				t.Errorf("%s removed=%v: %v %v %v, claimed %q", kernel, removed, r.state("c1"), r.state("c2"), r.state("c3"), r.claimed())
			}
			r.tree.Rmdir(t, parent+"/c3/init.scope")
			r.tree.Rmdir(t, parent+"/c3")
			r.Look()
			if r.claimed() != "" {
				t.Errorf("%s removed=%v: %q is claimed by nobody", kernel, removed, r.claimed())
			}
		}
	}
}

// About a container whose cgroup was never seen the runtime is asked, a few times.
func TestUnseen(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12")
	r.lsr(t, "elsewhere", "ended", "late")
	var asked [3]atomic.Int64
	late := make(chan struct{})
	answer := func(id string) (bool, error) {
		switch id {
		case "ended":
			if asked[0].Add(1) == 1 {
				return false, errors.New("the runtime is away")
			}
			return true, nil
		case "elsewhere":
			asked[1].Add(1)
		case "late":
			if asked[2].Add(1) == 4 {
				close(late)
			}
		}
		return false, nil
	}
	r.asked.Store(&answer)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Watch.Run(ctx) }()
	<-late
	r.live(t, "late", "")
	for end := time.Now().Add(time.Minute); asked[1].Load() < 5 || r.state("ended") != workload.StateStopped; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("asked %d and %d times, %v", asked[0].Load(), asked[1].Load(), r.state("ended"))
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for range 3 {
		if unseen := r.Look(); slices.Contains(unseen, "elsewhere") || slices.Contains(unseen, "ended") {
			t.Errorf("still to be asked about: %v", unseen)
		}
	}
	if n := asked[1].Load(); n != 5 || r.state("elsewhere") != workload.StateRunning {
		t.Errorf("asked %d times about one that runs elsewhere, which is %v", n, r.state("elsewhere"))
	}
	r.tree.Rmdir(t, parent+"/late")
	if r.Look(); r.state("late") != workload.StateStopped {
		t.Errorf("one that was seen late and has gone is %v", r.state("late"))
	}
}

// A container whose next life is about to begin when the runtime's turn to be asked comes is not asked about.
func TestRevivedBeforeAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12")
	r.lsr(t, "a-first", "b-again") // asked in this order
	pod, c, _ := r.Known("b-again")
	var asked atomic.Int64
	done := make(chan struct{})
	answer := func(id string) (bool, error) {
		switch {
		case id == "a-first" && asked.Add(1) == 1:
			r.Stop("b-again")
			r.Revive(engine.Sandbox{ID: "s", Read: func() *workload.Pod { return pod }}, engine.Arrival{ID: "b-again", Read: func(...*protocol.Applied) *workload.Container {
				again := *c
				again.State = workload.StateCreating
				return &again
			}})
		case id == "b-again":
			return true, nil // its first life has ended
		case asked.Load() == 2:
			close(done)
		}
		return false, nil
	}
	r.asked.Store(&answer)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Watch.Run(ctx) }()
	<-done
	cancel()
	if err := <-ended; err != nil || r.state("b-again") != workload.StateCreating {
		t.Errorf("%v; its state is %v", err, r.state("b-again"))
	}
}

// A container that begins another life while the runtime is asked about the one before has not ended.
func TestStartedAgainWhileAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12")
	r.lsr(t, "again")
	asked := make(chan struct{})
	var once atomic.Bool
	answer := func(id string) (bool, error) {
		if !once.CompareAndSwap(false, true) {
			return false, nil
		}
		defer close(asked)
		pod, c, _ := r.Known(id)
		err := r.Start(t.Context(), engine.Sandbox{ID: "s", Read: func() *workload.Pod { return pod }},
			engine.Arrival{ID: id, Read: func(...*protocol.Applied) *workload.Container { return c }}, 0, "")
		return err == nil, err
	}
	r.asked.Store(&answer)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Watch.Run(ctx) }()
	<-asked
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r.state("again") == workload.StateStopped || r.claimed() != "0-1" {
		t.Errorf("its state is %v, claimed %q", r.state("again"), r.claimed())
	}
}
