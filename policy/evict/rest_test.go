// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// asked is a pod that was asked to go, waiting one that an earlier step has chosen and whose turn has not come.
func asked(p evict.Pod) evict.Pod {
	p.Leaving, p.LeavingSince = true, 95*unit.Second
	return p
}

func waiting(p evict.Pod) evict.Pod {
	p.Leaving, p.LeavingSince, p.Held = true, 100*unit.Second, evict.ByTurn
	return p
}

// TestRest: who waits for his turn goes as long as those that were asked for do not hold all that is to be released, down to the lower mark. What is not
// measured neither calls him back nor sends him.
func TestRest(t *testing.T) {
	t.Parallel()
	agreed := func(p *evict.Pod) { p.EvictionEnabled = true }
	node := func(average, now unit.MilliCPU, pods ...evict.Pod) evict.Input {
		in := starving(pods...)
		in.Strategy = thresholds(func(t *strategy.ResourceThresholdStrategy) {
			t.CPUEvictThresholdPercent, t.CPUEvictLowerPercent, t.EvictEnabledPriorityThreshold = num(80), num(70), prio(9999)
		})
		in.CPU.Used, in.CPU.UsedNow = unit.Got(average), unit.Got(now)
		return in
	}
	pressed := func(now unit.Fraction, pods ...evict.Pod) evict.Input {
		in := starving(pods...)
		in.Strategy = thresholds(func(t *strategy.ResourceThresholdStrategy) { t.CPUEvictPSIThresholdPercent = num(50) })
		in.CPU.Pressure, in.CPU.PressureNow = unit.Got(unit.Fraction(0.9)), unit.Got(now)
		return in
	}
	starved := func(used, limit unit.MilliCPU) evict.Input {
		in := starving(waiting(cpuPod("b", 1000, 3000)))
		in.CPU.Average, in.CPU.Current = tier(used, 10000, limit), tier(used, 10000, limit)
		return in
	}
	four, six, twelve := bePod("four", 4), bePod("six", 6), bePod("twelve", 12)
	small, large := change(cpuPod("small", 2000, 2000), agreed), change(cpuPod("large", 6000, 6000), agreed)
	for name, tc := range map[string]struct {
		in      evict.Input
		feature evict.Feature
		want    evict.Rest
	}{
		// 96 GiB of memory are the threshold, 93.44 the lower mark.
		"memory":                            {memoryOf(104, asked(six), waiting(twelve)), evict.BEMemoryEvict, evict.Needed},
		"memory, all of it is asked for":    {memoryOf(104, asked(twelve), waiting(six)), evict.BEMemoryEvict, evict.Enough},
		"memory between the marks":          {memoryOf(95, waiting(four)), evict.BEMemoryEvict, evict.Needed},
		"between the marks, asked for":      {memoryOf(95, asked(four), waiting(six)), evict.BEMemoryEvict, evict.Enough},
		"between the marks, one is stuck":   {memoryOf(95, change(asked(four), func(p *evict.Pod) { p.LeavingSince = -unit.Minute }), waiting(six)), evict.BEMemoryEvict, evict.Needed},
		"memory below the lower mark":       {memoryOf(93, waiting(four)), evict.BEMemoryEvict, evict.Enough},
		"memory is not measured":            {with(memoryOf(104, waiting(four)), func(in *evict.Input) { in.Memory.Used.OK = false }), evict.BEMemoryEvict, evict.Unknown},
		"in the pause after a round":        {memoryOf(104, waiting(four), six), evict.BEMemoryEvict, evict.Needed},
		"another's by now":                  {with(memoryOf(104, waiting(four)), func(in *evict.Input) { in.Features = 0 }), evict.BEMemoryEvict, evict.Enough},
		"switched off":                      {with(memoryOf(104, waiting(four)), func(in *evict.Input) { in.Strategy.Enable = new(bool) }), evict.BEMemoryEvict, evict.Enough},
		"for another feature":               {memoryOf(104, waiting(four)), evict.CPUEvict, evict.Enough},
		"node CPU":                          {node(30000, 30000, asked(small), waiting(large)), evict.CPUEvict, evict.Needed},
		"node CPU between the marks":        {node(30000, 25000, asked(small), waiting(large)), evict.CPUEvict, evict.Needed},
		"node CPU, between on average":      {node(25000, 30000, waiting(large)), evict.CPUEvict, evict.Needed},
		"node CPU, asked for":               {node(30000, 25000, asked(large), waiting(small)), evict.CPUEvict, evict.Enough},
		"node CPU, low now":                 {node(30000, 22000, waiting(large)), evict.CPUEvict, evict.Enough},
		"node CPU, not measured":            {with(node(30000, 30000, waiting(large)), func(in *evict.Input) { in.CPU.Covered = 0 }), evict.CPUEvict, evict.Unknown},
		"pressure":                          {pressed(0.8, waiting(small)), evict.BECPUEvict, evict.Needed},
		"pressure is over":                  {pressed(0.4, waiting(small)), evict.BECPUEvict, evict.Enough},
		"pressure is not measured":          {with(pressed(0.8, waiting(small)), func(in *evict.Input) { in.CPU.Pressure.OK = false }), evict.BECPUEvict, evict.Unknown},
		"satisfaction":                      {starved(4800, 5000), evict.BECPUEvict, evict.Needed},
		"satisfaction between the marks":    {starved(6900, 7000), evict.BECPUEvict, evict.Needed},
		"satisfaction above the upper":      {starved(8000, 8100), evict.BECPUEvict, evict.Enough},
		"satisfaction, not used":            {starved(4000, 5000), evict.BECPUEvict, evict.Enough},
		"satisfaction, not used, between":   {starved(5000, 7000), evict.BECPUEvict, evict.Enough},
		"satisfaction, well now":            {with(starved(4800, 5000), func(in *evict.Input) { in.CPU.Current = tier(8000, 10000, 8500) }), evict.BECPUEvict, evict.Enough},
		"satisfaction between, well now":    {with(starved(6900, 7000), func(in *evict.Input) { in.CPU.Current = tier(8000, 10000, 8500) }), evict.BECPUEvict, evict.Enough},
		"satisfaction is not known now":     {with(starved(4800, 5000), func(in *evict.Input) { in.CPU.Current.Request.OK = false }), evict.BECPUEvict, evict.Unknown},
		"satisfaction, not for long enough": {with(starved(4800, 5000), func(in *evict.Input) { in.CPU.Covered = 0 }), evict.BECPUEvict, evict.Unknown},
	} {
		s := evict.State{}
		if name == "in the pause after a round" {
			s.MemoryAt = tc.in.Now - unit.Second
		}
		_, out := evict.Step(s, tc.in)
		e := &evict.Eviction{Feature: tc.feature}
		if got := evict.RestOf(out.Decisions, e); got != tc.want || evict.Take(out.Decisions, e) != (tc.want == evict.Needed) {
			t.Errorf("%s: %d, want %d\n%s", name, got, tc.want, reasons(out))
		}
	}
}

// TestRestOfBookings: each band's bookings are a decision of their own, and what one lacks keeps no victim of the other.
func TestRestOfBookings(t *testing.T) {
	t.Parallel()
	lent := func(name string, band protocol.PriorityClass, request unit.MilliCPU) evict.Pod {
		return change(cpuPod(name, 0, request), func(p *evict.Pod) { p.BE, p.Band, p.EvictionEnabled = false, band, true })
	}
	in := starving(waiting(lent("b", protocol.PriorityBatch, 4000)), waiting(lent("m", protocol.PriorityMid, 4000)))
	in.Strategy = thresholds(func(t *strategy.ResourceThresholdStrategy) {
		t.CPUAllocatableEvictThresholdPercent, t.CPUAllocatableEvictLowerPercent, t.AllocatableEvictPriorityThreshold = num(110), num(100), prio(7999)
	})
	for name, tc := range map[string]struct {
		batch, mid         unit.MilliCPU
		wantBatch, wantMid evict.Rest
	}{
		"both":              {3000, 3000, evict.Needed, evict.Needed},
		"one":               {5000, 3000, evict.Enough, evict.Needed},
		"between the marks": {3800, 4000, evict.Needed, evict.Enough},
		"not known":         {3000, 0, evict.Needed, evict.Unknown},
	} {
		in.CPU.BatchAllocatable, in.CPU.MidAllocatable = unit.Got(tc.batch), unit.Got(tc.mid)
		_, out := evict.Step(evict.State{}, in)
		rest := func(band protocol.PriorityClass) evict.Rest {
			return evict.RestOf(out.Decisions, &evict.Eviction{Feature: evict.CPUAllocatableEvict, Band: band})
		}
		if batch, mid := rest(protocol.PriorityBatch), rest(protocol.PriorityMid); batch != tc.wantBatch || mid != tc.wantMid {
			t.Errorf("%s: batch %d, mid %d, want %d and %d\n%s", name, batch, mid, tc.wantBatch, tc.wantMid, reasons(out))
		}
	}
	in.Pods, in.CPU.MidAllocatable = []evict.Pod{lent("m", protocol.PriorityMid, 4000)}, unit.Got[unit.MilliCPU](3000)
	if _, out := evict.Step(evict.State{}, in); len(out.Evictions) != 1 || out.Evictions[0].Band != protocol.PriorityMid {
		t.Errorf("%+v", out.Evictions)
	}
}

// TestNoTurnInDanger: who waits for his turn is chosen again in danger, once, so that nobody waits; whom the feature may not take is not
// counted on, for nobody may ask it to go.
func TestNoTurnInDanger(t *testing.T) {
	t.Parallel()
	agreed := func(p *evict.Pod) { p.EvictionEnabled = true }
	in := memoryOf(126, waiting(change(bePod("first", 40), agreed)), bePod("other", 5))
	in.Strategy.EvictEnabledPriorityThreshold = prio(9999)
	if _, out := evict.Step(evict.State{}, in); names(out) != "" {
		t.Errorf("calm: %q\n%s", names(out), reasons(out))
	}
	in.Danger = "none is left"
	s, out := evict.Step(evict.State{}, in)
	if names(out) != "first" || out.Evictions[0].RespectBudget || !strings.Contains(reasons(out), "MemoryEvict: node memory 126 GiB") {
		t.Errorf("danger: %q, %+v\n%s", names(out), out.Evictions, reasons(out))
	}
	for range 3 { // the executor is busy, and by now another one would come first
		in.Now += unit.Second
		in.Pods[0].LeavingSince, in.Pods[0].Held, in.Pods[1].MemoryUsed = in.Now, evict.ByDanger, unit.Got(45*gib)
		s, out = evict.Step(s, in)
		if names(out) != "" || !strings.Contains(reasons(out), "leaving pods hold 40 GiB: nothing more to do") {
			t.Errorf("still in danger: %q\n%s", names(out), reasons(out))
		}
		if got := out.Decisions[0].Memory.Left; got != out.Decisions[0].Memory.Release {
			t.Errorf("nobody was asked, and %d are left", got)
		}
	}
	in.Pods[0].Held, in.Pods[0].Allowed, in.Pods[1].MemoryUsed = evict.ByTurn, evict.Features(0).With(evict.BECPUEvict), unit.Got(5*gib)
	if _, out = evict.Step(evict.State{}, in); names(out) != "other" || strings.Contains(reasons(out), "leaving pods hold 4") {
		t.Errorf("danger, for CPU alone: %q\n%s", names(out), reasons(out))
	}
	in.Danger = ""
	if _, out = evict.Step(evict.State{}, in); names(out) != "" || !strings.Contains(reasons(out), "leaving pods hold 40 GiB: nothing more to do") {
		t.Errorf("calm, for CPU alone: %q\n%s", names(out), reasons(out))
	}
}

// What one of the features that look at the node's memory releases, the other need not any more; with CPU it is not so: they count other things.
func TestTakeOfTwoFeatures(t *testing.T) {
	t.Parallel()
	decisions := []evict.Decision{
		{Feature: evict.BEMemoryEvict, Memory: evict.Demand[unit.Bytes]{Left: 5}}, {Feature: evict.MemoryEvict, Memory: evict.Demand[unit.Bytes]{Left: 5}},
		{Feature: evict.CPUEvict, CPU: evict.Demand[unit.MilliCPU]{Left: 5}}, {Feature: evict.BECPUEvict, CPU: evict.Demand[unit.MilliCPU]{Left: 5}},
	}
	for i, e := range []struct {
		evict.Eviction
		needed bool
	}{
		{evict.Eviction{Feature: evict.BEMemoryEvict, Memory: 5}, true}, {evict.Eviction{Feature: evict.MemoryEvict, Memory: 5}, false},
		{evict.Eviction{Feature: evict.CPUEvict, CPU: 5}, true}, {evict.Eviction{Feature: evict.BECPUEvict, CPU: 5}, true},
	} {
		if got := evict.Take(decisions, &e.Eviction); got != e.needed {
			t.Errorf("%d, %s: needed %v", i, e.Feature, got)
		}
	}
}
