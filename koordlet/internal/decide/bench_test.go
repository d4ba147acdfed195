// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// BenchmarkStep is one tick with 80 pods of three containers, 20 of them best effort: by default, and with every loop on.
func BenchmarkStep(b *testing.B) {
	for name, on := range map[string]bool{"default": false, "all": true} {
		b.Run(name, func(b *testing.B) {
			f := crowd(80)
			f.View.Strategy.ResourceUsedThresholdWithBE.Enable, f.Tune = new(on), on
			if on {
				f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstAuto)
			}
			var s decide.State
			b.ReportAllocs()
			for b.Loop() {
				s, _ = decide.Step(s, f)
			}
		})
	}
}

// TestSteadyStepAllocatesLittle: what a step in which nothing has changed leaves to the garbage collector is a handful: lists that hold
// all pods at once and, with every loop on, the reasons that name the node's figures. It does not grow with the pods, but for the
// doublings of one list. It counts allocations, so it is not parallel.
func TestSteadyStepAllocatesLittle(t *testing.T) {
	for name, most := range map[string]float64{"default": 15, "all": 56} {
		on := name == "all"
		count := func(pods int) float64 {
			f := crowd(pods)
			f.View.Strategy.ResourceUsedThresholdWithBE.Enable, f.Tune = new(on), on
			if on {
				f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstAuto)
			}
			var s decide.State
			for range 3 {
				s, _ = decide.Step(s, f)
			}
			return testing.AllocsPerRun(20, func() { s, _ = decide.Step(s, f) })
		}
		few, many := count(20), count(100)
		if many > most || many-few > 4 {
			t.Errorf("%s: %v allocations with 20 pods, %v with 100; at most %v", name, few, many, most)
		}
	}
}

// What is remembered from step to step follows what it was made of: another View, other pods, other raises.
func TestNothingOldIsRemembered(t *testing.T) {
	t.Parallel()
	f := crowd(4)
	f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstAuto)
	f.View.Strategy.ResourceUsedThresholdWithBE.Enable, f.Tune = new(true), true
	var s decide.State
	for step, change := range []func(){
		func() {},
		func() { f.Now += 2 * unit.Second }, // what was measured is too old: nobody is raised
		func() { f.Now -= 2 * unit.Second },
		func() {
			v := *f.View
			v.Claims.LSR = topo.CPUs(0, 1)
			v.Dynamic.Known, v.Dynamic.Normalization = true, 150 // quotas are divided by 1.5
			f.View = &v
		},
		func() {
			m := &f.Members[1]
			p, c := *m.Pod, *m.Containers[0]
			p.Name, c.Base.Quota = "renamed", unit.Some(300000)
			m.Pod, m.Containers = &p, []*workload.Container{&c}
		},
		func() { f.Members = f.Members[:3] },
	} {
		change()
		fresh, err := json.Marshal(s) // the same state without what is remembered
		if err != nil {
			t.Fatal(err)
		}
		var forgetful decide.State
		if err := json.Unmarshal(fresh, &forgetful); err != nil {
			t.Fatal(err)
		}
		_, want := decide.Step(forgetful, f)
		var got decide.Outcome
		s, got = decide.Step(s, f)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("step %d (-without memory +with):\n%s", step, diff)
		}
	}
}

// crowd is a node with so many pods, all measured.
func crowd(pods int) *decide.Facts {
	f, w := facts(strategy.SuppressCPUSet)
	f.View.Kernel.Knobs[plan.MemoryHigh].OK = true
	at := f.Now - unit.Second/10
	measured := []sample.Metric{
		sample.CPUUsage, sample.CPUThrottled, sample.MemoryUsage, sample.MemoryWithPageCache, sample.MemoryCharged, sample.StallCPUSome, sample.RunQueueDelay,
	}
	one := func(s sample.Subject) {
		for _, metric := range measured {
			w.Append([]sample.Sample{{Subject: s, Metric: metric, Value: 0.1, At: at}})
		}
	}
	one(sample.OfNode())
	f.Members = nil
	for i := range pods {
		uid, class, kube := "uid-"+strconv.Itoa(i), protocol.QoSLS, protocol.KubeBurstable
		if i%4 == 0 {
			class, kube = protocol.QoSBE, protocol.KubeBestEffort
		}
		m := member(uid, class, kube)
		one(sample.OfPod(uid))
		for j := range 3 {
			c := &workload.Container{ID: uid + strconv.Itoa(j), Name: "app", Base: workload.Resources{Quota: unit.Some(100000)}}
			one(sample.OfContainer(c.ID))
			m.Containers = append(m.Containers, c)
		}
		f.Members = append(f.Members, m)
	}
	return f
}
