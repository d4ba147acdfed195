// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"strconv"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
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

// TestSteadyStepAllocatesLittle: what a step leaves to the garbage collector is bounded for each pod: its name, for reasons; with every
// loop on, besides, the list of its containers and a reason for each of the three, which are throttled. It counts allocations, so it is
// not parallel.
func TestSteadyStepAllocatesLittle(t *testing.T) {
	for name, most := range map[string]float64{"default": 1.5, "all": 16} {
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
		if each := (many - few) / 80; each > most {
			t.Errorf("%s: %.1f allocations for each pod: %v with 20 pods, %v with 100", name, each, few, many)
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
