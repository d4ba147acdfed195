// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/memqos"
)

const gib = 1 << 30

// tight is a node of 100 GiB whose memory is used to 69 %, within two points of the threshold, with a BE container of
// 10 GiB, 4 of them file cache.
func tight(used float64) (*decide.Facts, *window.Memory) {
	f, w := facts(strategy.SuppressCPUSet)
	f.View.Strategy.ResourceUsedThresholdWithBE.MemoryEvictThresholdPercent = new(int64(70))
	f.View.Kernel.Knobs[plan.MemoryHigh].OK = true
	f.Members[0].Containers = []*workload.Container{{ID: "c1", Name: "app"}}
	remember(w, f.Now-unit.Second/2, used)
	return f, w
}

func remember(w *window.Memory, at unit.Micros, used float64) {
	one := sample.OfContainer("c1")
	w.Append([]sample.Sample{
		{Subject: sample.OfNode(), Metric: sample.MemoryUsage, Value: used * gib, At: at},
		{Subject: one, Metric: sample.MemoryUsage, Value: 6 * gib, At: at},
		{Subject: one, Metric: sample.MemoryWithPageCache, Value: 10 * gib, At: at},
		{Subject: one, Metric: sample.MemoryCharged, Value: 10 * gib, At: at},
	})
}

func TestMemory(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		used       float64
		change     func(*decide.Facts)
		pressure   memqos.Pressure
		reclaims   unit.Bytes
		high       unit.Bytes
		reclaiming bool
	}{
		"calm":  {used: 40, pressure: memqos.Calm},
		"near":  {used: 66, pressure: memqos.Near, reclaims: gib / 2, reclaiming: true},
		"tight": {used: 69, pressure: memqos.Tight, reclaims: gib, high: 10 * gib, reclaiming: true},
		"no memory.reclaim": {
			used: 69, pressure: memqos.Tight, high: 9 * gib, reclaiming: true,
			change: func(f *decide.Facts) { f.NoReclaim = "an old kernel" },
		},
		"neither memory.reclaim nor memory.high": {
			used: 69, pressure: memqos.Tight,
			change: func(f *decide.Facts) {
				f.NoReclaim = "cgroup v1"
				f.View.Kernel.Knobs[plan.MemoryHigh].OK = false
			},
		},
		"memory QoS only observed": {
			used: 69, pressure: memqos.Tight, change: func(f *decide.Facts) { f.View.Modes[protocol.FeatureMemory] = node.Observe },
		},
		"opted out": {
			used: 69, pressure: memqos.Tight,
			change: func(f *decide.Facts) {
				f.Members[0].Pod.Ask.OptOut = protocol.FeatureSet(0).With(protocol.FeatureMemory)
			},
		},
		"no thresholds": {
			used: 69, pressure: memqos.Calm,
			change: func(f *decide.Facts) { f.View.Strategy.ResourceUsedThresholdWithBE.Enable = new(false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := tight(tc.used)
			if tc.change != nil {
				tc.change(f)
			}
			_, out := decide.Step(decide.State{}, f)
			var reclaims unit.Bytes
			for _, r := range out.Reclaims {
				reclaims += r.Bytes
			}
			if out.Memory.Pressure != tc.pressure || !near(reclaims, tc.reclaims) || out.Memory.Reclaiming != tc.reclaiming {
				t.Errorf("%s, reclaims %d, %v: %s", out.Memory.Pressure, reclaims, out.Memory.Reclaiming, out.Memory.Reason)
			}
			if got := out.Dynamic.MemoryHigh["c1"]; !near(got.Bytes, tc.high) || (got.Reason == "") != (tc.high == 0) {
				t.Errorf("memory.high %+v, want %d", got, tc.high)
			}
		})
	}
}

// What a container uses is its charge, which has kernel memory besides anonymous memory and page cache.
func TestMemoryCountsTheCharge(t *testing.T) {
	t.Parallel()
	f, w := tight(69)
	w.Append([]sample.Sample{{Subject: sample.OfContainer("c1"), Metric: sample.MemoryCharged, Value: 11 * gib, At: f.Now - unit.Second/2}})
	if _, out := decide.Step(decide.State{}, f); !near(out.Dynamic.MemoryHigh["c1"].Bytes, 11*gib) {
		t.Errorf("memory.high %+v of a container that is charged 11 GiB, 10 of them by its own pages", out.Dynamic.MemoryHigh["c1"])
	}
}

func near(a, b unit.Bytes) bool { return max(a-b, b-a) < 8<<20 }

// While a round of reclaim runs the loop does not ask again, and leaves in force what it has decided; afterwards it knows
// what the round has brought.
func TestMemoryWaitsForReclaim(t *testing.T) {
	t.Parallel()
	f, w := tight(69)
	s, out := decide.Step(decide.State{}, f)
	first := out.Dynamic.MemoryHigh
	if len(out.Reclaims) != 1 || out.Reclaims[0].Container != "c1" {
		t.Fatalf("reclaims: %+v", out.Reclaims)
	}
	f.Now += unit.Second
	remember(w, f.Now-unit.Second/2, 69)
	f.Reclaiming = true
	s, out = decide.Step(s, f)
	if len(out.Reclaims) != 0 || !out.Memory.Reclaiming {
		t.Errorf("asked again: %+v", out.Reclaims)
	}
	if diff := cmp.Diff(first, out.Dynamic.MemoryHigh); diff != "" {
		t.Error(diff)
	}
	// It has brought next to nothing, so this container is left alone for a while.
	f.Now += unit.Second
	remember(w, f.Now-unit.Second/2, 69)
	f.Reclaiming, f.Reclaimed = false, map[string]unit.Bytes{"c1": 1 << 20}
	if _, out = decide.Step(s, f); len(out.Reclaims) != 0 || out.Memory.Reclaiming {
		t.Errorf("from a container that gave nothing: %+v", out.Reclaims)
	}
}
