// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package enginetest_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// markless is an edge whose specification carries nothing.
type markless struct{}

// Mark implements engine.Edge.
func (markless) Mark(*node.View, plan.Plan, *workload.Container) *protocol.Applied { return nil }

// A machine is of the kernel that was named: its cgroup version, its release, and those knobs that it has a file for.
func TestStaticIsOfTheKernel(t *testing.T) {
	t.Parallel()
	for kernel, c := range map[string]struct {
		version node.CgroupVersion
		major   int
		latency bool
	}{"v1": {node.CgroupV1, 0, false}, "6.12": {node.CgroupV2, 6, true}} {
		m := enginetest.New(t, kernel, "/kubepods/podu")
		s := m.Static(t, plan.CPUQuota, plan.IOLatency)
		if s.Kernel.Cgroup != c.version || c.major > 0 && s.Kernel.Major != c.major || s.Kernel.Release == "" || s.Topology.All().Empty() {
			t.Errorf("%s: %+v", kernel, s.Kernel)
		}
		if !s.Kernel.Has(plan.CPUQuota) || s.Kernel.Has(plan.IOLatency) != c.latency || s.Kernel.Has(plan.CPUShares) {
			t.Errorf("%s: quota %v, latency %v, shares %v", kernel, s.Kernel.Has(plan.CPUQuota), s.Kernel.Has(plan.IOLatency), s.Kernel.Has(plan.CPUShares))
		}
	}
}

// The writer's values are in the machine's files, and its journal has them, by container and knob.
func TestWriterAndJournal(t *testing.T) {
	t.Parallel()
	const dir = "/kubepods/podu/c1"
	m := enginetest.New(t, "6.12", dir)
	changed := false
	w := m.Writer(t, func(*apply.Options) { changed = true })
	target := plan.Target{Level: plan.LevelContainer, Cgroup: dir, Container: "c1"}
	for _, r := range w.Apply(t.Context(), plan.Plan{
		{Target: target, Knob: plan.MemoryHigh, Value: plan.Int(1 << 20)}, {Target: target, Knob: plan.MemoryLow, Value: plan.Int(4096)},
	}, 1) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if got := m.Tree.Get(t, dir, "memory.high"); got != "1048576" || !changed {
		t.Errorf("memory.high is %s; the options were changed: %v", got, changed)
	}
	of := m.Journal.Of("c1", plan.MemoryHigh.String())
	if len(m.Journal.All()) != 2 || len(of) != 1 || of[0].Want != "1048576" || len(m.Journal.Of("c2", plan.MemoryHigh.String())) > 0 {
		t.Errorf("journal: %+v", m.Journal.All())
	}
}

// An engine of a machine works in the background until its test ends; goleak finds one that does not. Its View has the strategy, and its
// writes are in the machine's files.
func TestRun(t *testing.T) {
	t.Parallel()
	t.Run("a test", func(t *testing.T) {
		const pod, dir = "/kubepods/podu", "/kubepods/podu/c1"
		m := enginetest.New(t, "6.12", dir)
		for _, cgroup := range []string{pod, dir} {
			m.Tree.Set(t, cgroup, "cpu.max", "80000 100000")
		}
		strategy := "cpuBurstStrategy: {policy: cpuBurstOnly, cpuBurstPercent: 50}\n"
		g := engine.New(m.Options(t, config.Default().Node, markless{}, strategy, plan.CPUQuota, plan.CPUBurst))
		enginetest.Run(t, g)
		g.Synchronize([]*workload.Pod{{
			ID: "s", UID: "u", KubeQoS: protocol.KubeGuaranteed, Cgroup: pod, QoSCgroup: "/kubepods", Ask: protocol.Ask{QoS: protocol.QoSLS},
		}}, []engine.Listed{{Sandbox: "s", Arrival: engine.Arrival{ID: "c1", Read: func(...*protocol.Applied) *workload.Container {
			return &workload.Container{ID: "c1", Name: "app", Cgroup: dir, State: workload.StateRunning, Base: workload.Resources{
				Quota: unit.Some(80000), Period: unit.Some(100000),
			}}
		}}}})
		enginetest.Eventually(t, "the burst", func() bool { return m.Tree.Get(t, dir, "cpu.max.burst") == "40000" })
	})
}

// failing is a test that may fail.
type failing struct {
	testing.TB
	failed bool
}

func (*failing) Helper() {}

func (f *failing) Fatalf(string, ...any) {
	f.failed = true
	runtime.Goexit()
}

// Eventually waits for what comes late, and gives up after a minute.
func TestEventually(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for late, fails := range map[time.Duration]bool{0: false, 50 * time.Second: false, 70 * time.Second: true} {
			f, start, done := &failing{TB: t}, time.Now(), make(chan struct{})
			go func() {
				defer close(done)
				enginetest.Eventually(f, "it", func() bool { return time.Since(start) >= late })
			}()
			<-done
			if took := time.Since(start); f.failed != fails || !fails && took < late || took > 61*time.Second {
				t.Errorf("after %s: failed %v, took %s", late, f.failed, took)
			}
		}
	})
}
