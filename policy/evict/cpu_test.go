// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

func tier(used, request, limit unit.MilliCPU) evict.Tier {
	return evict.Tier{Used: unit.Got(used), Request: unit.Got(request), Limit: unit.Got(limit)}
}

// starving is the documented example: BE requests 10 CPUs and is left 5 of them, which it uses.
func starving(pods ...evict.Pod) evict.Input {
	return evict.Input{
		Now: 100 * unit.Second, Features: evict.All, Pods: pods,
		Strategy: thresholds(func(t *strategy.ResourceThresholdStrategy) {
			t.CPUEvictBESatisfactionLowerPercent, t.CPUEvictBESatisfactionUpperPercent = num(60), num(80)
		}),
		CPU: evict.CPU{
			Capacity: 32000, Average: tier(4800, 10000, 5000), Current: tier(4800, 10000, 5000), Covered: 60 * unit.Second,
		},
		Memory: evict.Memory{Capacity: 100 * gib, Used: unit.Got(10 * gib)},
	}
}

func TestSatisfaction(t *testing.T) {
	t.Parallel()
	pods := []evict.Pod{cpuPod("lazy", 500, 2000), cpuPod("busy", 2000, 2000), cpuPod("large", 2300, 6000)}
	for name, tc := range map[string]struct {
		change func(*evict.Input)
		want   string
		reason string
	}{
		"documented example":              {want: "large", reason: "BE pods request 10 CPUs, limit 5 (50%), use 4.8: satisfaction is at most 60%, up to 80%: release 3 CPUs: 1 victim with 6 CPUs"},
		"the greediest per request first": {change: func(in *evict.Input) { in.Pods[2].CPURequest = 2000 }, want: "large busy"},
		"lowest priority first": {change: func(in *evict.Input) {
			in.Pods[2].Priority = 5000
		}, want: "large"},
		"satisfied":              {change: func(in *evict.Input) { in.CPU.Average.Limit = unit.Got[unit.MilliCPU](6001) }, reason: "satisfaction is above 60%"},
		"at the mark":            {change: func(in *evict.Input) { in.CPU.Average = tier(5900, 10000, 6000) }, want: "busy"},
		"satisfied just now":     {change: func(in *evict.Input) { in.CPU.Current = tier(5000, 10000, 7000) }, reason: "limit 7 (70%)"},
		"less is missing now":    {change: func(in *evict.Input) { in.CPU.Current = tier(5500, 10000, 6000) }, want: "busy", reason: "release 2 CPUs"},
		"not used up":            {change: func(in *evict.Input) { in.CPU.Average.Used = unit.Got[unit.MilliCPU](4400) }, reason: "they use less than 90% of it"},
		"a limit below one CPU":  {change: func(in *evict.Input) { in.CPU.Average, in.CPU.Current = tier(0, 10000, 900), tier(0, 10000, 900) }, want: "busy large", reason: "release 7.1 CPUs"},
		"by allocatable":         {change: func(in *evict.Input) { in.Strategy.CPUEvictPolicy = str(strategy.EvictByAllocatable) }, reason: "is not known"},
		"by allocatable, enough": {change: func(in *evict.Input) { byAllocatable(in, 9000) }, reason: "allocatable 9 (90%)"},
		"by allocatable, little": {change: func(in *evict.Input) { byAllocatable(in, 5000) }, want: "large"},
		"window hardly covered":  {change: func(in *evict.Input) { in.CPU.Covered = 19 * unit.Second }, reason: "not measured for long enough"},
		"a third is enough":      {change: func(in *evict.Input) { in.CPU.Covered = 20 * unit.Second }, want: "large"},
		"nobody requests":        {change: func(in *evict.Input) { in.CPU.Average.Request.V = 0 }, reason: "is not known"},
		"request not measured":   {change: func(in *evict.Input) { in.CPU.Current.Request.OK = false }, reason: "is not known"},
		"one mark is missing":    {change: func(in *evict.Input) { in.Strategy.CPUEvictBESatisfactionUpperPercent = nil }},
		"marks the wrong way":    {change: func(in *evict.Input) { in.Strategy.CPUEvictBESatisfactionUpperPercent = num(50) }},
		"leaving pods count": {change: func(in *evict.Input) {
			in.Pods[1].Leaving, in.Pods[0].Leaving = true, true
		}, reason: "of which leaving pods hold 4 CPUs: nothing more to do"},
		"mid-cpu is no batch-cpu": {change: func(in *evict.Input) { in.Pods[2].Band = protocol.PriorityMid }, want: "busy lazy"},
		"no BE pods":              {change: func(in *evict.Input) { in.Pods = []evict.Pod{lsPod("ls", 3)} }, reason: "0 victims"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := starving(append([]evict.Pod(nil), pods...)...)
			if tc.change != nil {
				tc.change(&in)
			}
			_, out := evict.Step(evict.State{}, in)
			if names(out) != tc.want || !strings.Contains(reasons(out), tc.reason) {
				t.Errorf("victims %q, want %q\n%s\nwant %q", names(out), tc.want, reasons(out), tc.reason)
			}
			for _, e := range out.Evictions {
				if e.Feature != evict.BECPUEvict || e.CPU <= 0 || e.Memory != 0 || !e.RespectBudget {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

func str(s string) *string { return &s }

func byAllocatable(in *evict.Input, m unit.MilliCPU) {
	in.Strategy.CPUEvictPolicy, in.CPU.BatchAllocatable = str(strategy.EvictByAllocatable), unit.Got(m)
	in.CPU.Average.Used, in.CPU.Current.Used = unit.Got(m), unit.Got(m)
}

// TestPressure is A7: CPU pressure of the BE tier 86 over the window evicts one round, 84 nobody.
func TestPressure(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pressure unit.Measured[unit.Fraction]
		change   func(*evict.Input)
		want     string
		reason   string
	}{
		"86":       {pressure: unit.Got[unit.Fraction](0.86), want: "large", reason: "BE pods wait for a CPU 86% of the time on average, above 85%, and use 4.8 CPUs: release 0.06 CPUs: 1 victim with 2.3 CPUs"},
		"85":       {pressure: unit.Got[unit.Fraction](0.85), reason: "not above 85%"},
		"84":       {pressure: unit.Got[unit.Fraction](0.84), reason: "84% of the time on average, not above 85%"},
		"100":      {pressure: unit.Got[unit.Fraction](1), want: "large", reason: "release 0.72 CPUs"},
		"no value": {reason: "no decision"},
		"no PSI in the kernel, limit used up": {
			change: func(in *evict.Input) { in.CPU.NoPressure = true }, want: "large",
			reason: "this kernel tells no CPU pressure of the BE pods, their satisfaction stands in: BE pods request 10 CPUs, limit 5 (50%), use 4.8: satisfaction is at most 60%, up to 80%",
		},
		"no PSI in the kernel, 85 % not used": {
			change: func(in *evict.Input) { in.CPU.NoPressure, in.CPU.Average.Used = true, unit.Got[unit.MilliCPU](4200) }, reason: "less than 85% of it",
		},
		"window hardly covered": {pressure: unit.Got[unit.Fraction](0.86), change: func(in *evict.Input) { in.CPU.Covered = 0 }, reason: "no decision"},
	} {
		in := starving(cpuPod("lazy", 500, 2000), cpuPod("busy", 2000, 2000), cpuPod("large", 2300, 6000))
		in.Strategy = thresholds(func(t *strategy.ResourceThresholdStrategy) { t.CPUEvictPSIThresholdPercent = num(85) })
		in.CPU.Pressure = tc.pressure
		if tc.change != nil {
			tc.change(&in)
		}
		s, out := evict.Step(evict.State{}, in)
		if names(out) != tc.want || !strings.Contains(reasons(out), tc.reason) {
			t.Errorf("%s: victims %q, want %q\n%s", name, names(out), tc.want, reasons(out))
		}
		for _, d := range out.Decisions {
			if d.Feature == evict.BECPUEvict && (d.Limited != "") != in.CPU.NoPressure {
				t.Errorf("%s: limited %q", name, d.Limited)
			}
		}
		if tc.want == "" {
			continue
		}
		in.Now += 19 * unit.Second
		if _, out = evict.Step(s, in); names(out) != "" || !strings.Contains(reasons(out), "pause of 20 s") {
			t.Errorf("%s: %q in the pause", name, names(out))
		}
	}
}

func TestNodeCPU(t *testing.T) {
	t.Parallel()
	in := starving(change(cpuPod("small", 2000, 0), func(p *evict.Pod) { p.EvictionEnabled = true }),
		change(cpuPod("large", 3000, 0), func(p *evict.Pod) { p.EvictionEnabled = true }), cpuPod("unwilling", 9000, 0))
	in.Strategy = thresholds(func(t *strategy.ResourceThresholdStrategy) {
		t.CPUEvictThresholdPercent, t.EvictEnabledPriorityThreshold = num(90), prio(5999)
	})
	for name, tc := range map[string]struct {
		used   unit.Measured[unit.MilliCPU]
		want   string
		reason string
	}{
		"below":     {unit.Got[unit.MilliCPU](28799), "", "(90%) on average is below 90%"},
		"reached":   {unit.Got[unit.MilliCPU](28800), "large", "(90%) on average has reached 90%, down to 88%: release 0.64 CPUs: 1 victim with 3 CPUs"},
		"far above": {unit.Got[unit.MilliCPU](31500), "large small", "release 3.34 CPUs"},
		"unknown":   {unit.Measured[unit.MilliCPU]{}, "", "no decision"},
	} {
		in.CPU.Used = tc.used
		if _, out := evict.Step(evict.State{}, in); names(out) != tc.want || !strings.Contains(reasons(out), tc.reason) {
			t.Errorf("%s: %q\n%s", name, names(out), reasons(out))
		}
	}
}

func TestBooked(t *testing.T) {
	t.Parallel()
	mid := func(name string, request unit.MilliCPU, mem unit.Bytes) evict.Pod {
		return change(cpuPod(name, 0, request), func(p *evict.Pod) {
			p.BE, p.Band, p.Priority, p.MemoryRequest, p.EvictionEnabled = false, protocol.PriorityMid, 7500, mem, true
		})
	}
	batch := func(name string, request unit.MilliCPU, mem unit.Bytes) evict.Pod {
		p := mid(name, request, mem)
		p.Band, p.Priority = protocol.PriorityBatch, 5500
		return p
	}
	base := starving(mid("m1", 4000, 4*gib), mid("m2", 5000, 5*gib), batch("b1", 6000, 6*gib), batch("b2", 7000, 7*gib))
	base.Strategy = thresholds(func(t *strategy.ResourceThresholdStrategy) {
		t.CPUAllocatableEvictThresholdPercent, t.CPUAllocatableEvictLowerPercent = num(110), num(100)
		t.MemoryAllocatableEvictThresholdPercent, t.MemoryAllocatableEvictLowerPercent = num(110), num(100)
		t.AllocatableEvictPriorityThreshold = prio(7999)
	})
	base.CPU.MidAllocatable, base.CPU.BatchAllocatable = unit.Got[unit.MilliCPU](20000), unit.Got[unit.MilliCPU](20000)
	base.Memory.MidAllocatable, base.Memory.BatchAllocatable = unit.Got(100*gib), unit.Got(100*gib)
	for name, tc := range map[string]struct {
		change func(*evict.Input)
		want   string
		reason string
	}{
		"enough":     {reason: "koord-batch pods request 13 of 20 CPUs allocatable, not above 110%"},
		"batch CPU":  {change: func(in *evict.Input) { in.CPU.BatchAllocatable.V = 11000 }, want: "b1", reason: "request 13 of 11 CPUs allocatable, above 110%: release 2 CPUs"},
		"mid memory": {change: func(in *evict.Input) { in.Memory.MidAllocatable.V = 5 * gib }, want: "m1", reason: "koord-mid pods request 9 GiB of 5 GiB allocatable"},
		"priority threshold": {change: func(in *evict.Input) {
			in.Memory.MidAllocatable.V, in.Strategy.AllocatableEvictPriorityThreshold = gib, prio(5999)
		}},
		"no threshold": {change: func(in *evict.Input) {
			in.CPU.BatchAllocatable.V, in.Strategy.AllocatableEvictPriorityThreshold = 1000, nil
		}},
		"nothing is offered":       {change: func(in *evict.Input) { in.CPU.BatchAllocatable.V = 0 }, reason: "no decision: koord-batch pods request 13 of 0 CPUs"},
		"not known":                {change: func(in *evict.Input) { in.Memory.BatchAllocatable.OK = false }, reason: "no decision"},
		"owner does not agree":     {change: func(in *evict.Input) { in.CPU.BatchAllocatable.V, in.Pods[2].EvictionEnabled = 11000, false }, want: "b2"},
		"CPU after memory's share": {change: func(in *evict.Input) { in.CPU.BatchAllocatable.V, in.Memory.BatchAllocatable.V = 11000, 11*gib }, want: "b1"},
	} {
		in := base
		in.Pods = append([]evict.Pod(nil), base.Pods...)
		if tc.change != nil {
			tc.change(&in)
		}
		if _, out := evict.Step(evict.State{}, in); names(out) != tc.want || !strings.Contains(reasons(out), tc.reason) {
			t.Errorf("%s: %q, want %q\n%s", name, names(out), tc.want, reasons(out))
		}
	}
}

func TestDecodePolicy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		value   string
		present bool
		want    evict.Features
		ok      bool
	}{
		"missing":     {"", false, evict.All, true},
		"one":         {`["BEMemoryEvict"]`, true, evict.Features(0).With(evict.BEMemoryEvict), true},
		"two":         {`["CPUEvict","BECPUEvict"]`, true, evict.Features(0).With(evict.CPUEvict).With(evict.BECPUEvict), true},
		"none":        {`[]`, true, 0, true},
		"unknown":     {`["Sometimes"]`, true, 0, true},
		"malformed":   {`BEMemoryEvict`, true, 0, false},
		"empty":       {``, true, 0, false},
		"null":        {`null`, true, 0, false},
		"not a list":  {`{"a":1}`, true, 0, false},
		"not strings": {`[1]`, true, 0, false},
		"endless":     {`["` + strings.Repeat("x", 70000) + `"]`, true, 0, false},
	} {
		if got, ok := evict.DecodePolicy(tc.value, tc.present); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %06b, %v; want %06b, %v", name, got, ok, tc.want, tc.ok)
		}
	}
	if evict.Feature(99).String() != "unknown" || evict.All.Has(99) || evict.Features(0).With(99) != 0 {
		t.Error("feature 99 exists")
	}
}

func FuzzDecodePolicy(f *testing.F) {
	f.Add(`["BEMemoryEvict"]`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, value string) {
		if got, ok := evict.DecodePolicy(value, true); !ok && got != 0 || got&^evict.All != 0 {
			t.Errorf("%q: %b, %v", value, got, ok)
		}
	})
}

// TestProperties: over random nodes no victim is superfluous, nobody goes twice or unasked, and more use never means
// fewer victims' memory.
func TestProperties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		in := memoryOf(90 + 38*r.Float64())
		for i := range r.IntN(20) {
			p := bePod("p"+strconv.Itoa(i), 10*r.Float64())
			p.Priority, p.Leaving = int32(5000+r.IntN(3)), r.IntN(5) == 0
			if r.IntN(4) == 0 {
				p.Held = evict.Held(1 + r.IntN(2)) //nolint:gosec // 1 or 2
			}
			if r.IntN(3) == 0 {
				p = lsPod(p.Name, 5)
			}
			in.Pods = append(in.Pods, p)
		}
		if r.IntN(2) == 0 {
			in.Strategy.EvictEnabledPriorityThreshold = prio(9999)
		}
		_, out := evict.Step(evict.State{}, in)
		byFeature := map[evict.Feature][]unit.Bytes{}
		seen := map[string]bool{}
		for _, e := range out.Evictions {
			if seen[e.Name] {
				t.Fatalf("%s is evicted twice", e.Name)
			}
			seen[e.Name] = true
			byFeature[e.Feature] = append(byFeature[e.Feature], e.Memory)
		}
		for _, p := range in.Pods {
			agreed := p.BE || in.Strategy.EvictEnabledPriorityThreshold != nil
			if seen[p.Name] && (p.Leaving || p.Held != evict.NotHeld || !agreed) {
				t.Fatalf("%s must not go: %+v", p.Name, p)
			}
		}
		for _, d := range out.Decisions {
			var sum unit.Bytes
			for _, b := range byFeature[d.Feature] {
				sum += b
			}
			if sum != d.Memory.Chosen {
				t.Fatalf("victims hold %d, the decision says %d", sum, d.Memory.Chosen)
			}
			for _, b := range byFeature[d.Feature] {
				if left := d.Memory.Release - d.Memory.Pending; sum-b >= left {
					t.Fatalf("a victim of %d is not needed for %d: %v", b, left, byFeature[d.Feature])
				}
			}
		}
	}
}

// TestScenario: a leak fills the node; pods take ten seconds to end. Nobody is evicted twice over, and memory comes back
// below the threshold.
func TestScenario(t *testing.T) {
	t.Parallel()
	in := memoryOf(80, bePod("a", 6), bePod("b", 5), bePod("c", 4), bePod("d", 3), lsPod("ls", 60))
	ls, s, evicted := 60.0, evict.State{}, 0
	for range 120 {
		in.Now += unit.Second
		ls = min(ls+0.5, 85)
		total := unit.Bytes(0)
		kept := in.Pods[:0:0]
		for _, p := range in.Pods {
			if p.Leaving && in.Now-p.LeavingSince >= 10*unit.Second {
				continue
			}
			if p.Name == "ls" {
				p.MemoryUsed = unit.Got(unit.Bytes(ls * float64(gib)))
			}
			total += p.MemoryUsed.V
			kept = append(kept, p)
		}
		in.Pods, in.Memory.Used = kept, unit.Got(total)
		var out evict.Output
		s, out = evict.Step(s, in)
		for _, e := range out.Evictions {
			evicted++
			for i := range in.Pods {
				if in.Pods[i].Name == e.Name {
					in.Pods[i].Leaving, in.Pods[i].LeavingSince = true, in.Now
				}
			}
		}
	}
	// 85 + 18 is 9.56 GiB above 73 %: the two largest pods are enough once LS stops growing; three because it grows in steps.
	if evicted > 3 || in.Memory.Used.V > 96*gib {
		t.Errorf("%d evicted, %d bytes used", evicted, in.Memory.Used.V)
	}
}

// TestGoneIsGone: victims are in the averages for the rest of the window. What was crossed by them on average, and no longer is now, evicts
// nobody else; less that is over now releases less.
func TestGoneIsGone(t *testing.T) {
	t.Parallel()
	by := func(change func(*strategy.ResourceThresholdStrategy), measure func(*evict.CPU)) (string, string) {
		in := starving(cpuPod("lazy", 500, 2000), cpuPod("busy", 2000, 2000), cpuPod("large", 2300, 6000))
		for i := range in.Pods {
			in.Pods[i].EvictionEnabled = true
		}
		in.Strategy = thresholds(change)
		measure(&in.CPU)
		_, out := evict.Step(evict.State{}, in)
		return names(out), reasons(out)
	}
	node := func(t *strategy.ResourceThresholdStrategy) {
		high := int32(9999)
		t.CPUEvictThresholdPercent, t.CPUEvictLowerPercent, t.EvictEnabledPriorityThreshold = num(80), num(70), &high
	}
	pressure := func(t *strategy.ResourceThresholdStrategy) { t.CPUEvictPSIThresholdPercent = num(50) }
	uses := func(average, now unit.MilliCPU) func(*evict.CPU) {
		return func(c *evict.CPU) { c.Used, c.UsedNow = unit.Got(average), unit.Got(now) }
	}
	waits := func(average, now unit.Fraction) func(*evict.CPU) {
		return func(c *evict.CPU) { c.Pressure, c.PressureNow = unit.Got(average), unit.Got(now) }
	}
	for name, tc := range map[string]struct {
		change       func(*strategy.ResourceThresholdStrategy)
		measure      func(*evict.CPU)
		want, reason string
	}{
		"node, still":             {node, uses(28000, 30000), "busy large lazy", "release 5.6 CPUs"},
		"node, a little less":     {node, uses(28000, 25700), "busy large", "release 3.3 CPUs"},
		"node, no longer":         {node, uses(28000, 25500), "", "and 25.5 of 32 CPUs (79.69%) now, which is below 80%"},
		"pressure, still":         {pressure, waits(0.9, 1), "large", "release 2.13 CPUs"},
		"pressure, a little less": {pressure, waits(0.9, 0.6), "large", "release 0.8 CPUs"},
		"pressure, no longer":     {pressure, waits(0.9, 0.5), "", "and 50% now, not above 50%"},
	} {
		got, why := by(tc.change, tc.measure)
		if sorted(got) != tc.want || !strings.Contains(why, tc.reason) {
			t.Errorf("%s: %q, want %q\n%s", name, got, tc.want, why)
		}
	}
}

func sorted(list string) string {
	all := strings.Fields(list)
	slices.Sort(all)
	return strings.Join(all, " ")
}
