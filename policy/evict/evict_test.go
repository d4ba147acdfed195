// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

const gib = unit.Bytes(1 << 30)

// thresholds is the default strategy, switched on.
func thresholds(change func(*strategy.ResourceThresholdStrategy)) strategy.ResourceThresholdStrategy {
	on := true
	t := strategy.ResourceThresholdStrategy{Enable: &on}
	if change != nil {
		change(&t)
	}
	full := strategy.Effective(strategy.Spec{ResourceUsedThresholdWithBE: &t})
	return *full.ResourceUsedThresholdWithBE
}

func num(n int64) *int64 { return &n }
func prio(n int32) *int32 {
	return &n
}

// bePod is a batch pod that uses gibs GiB.
func bePod(name string, gibs float64) evict.Pod {
	return evict.Pod{
		UID: "uid-" + name, Namespace: "default", Name: name, BE: true, Band: protocol.PriorityBatch, Priority: 5500, Allowed: evict.All,
		MemoryUsed: unit.Got(unit.Bytes(gibs * float64(gib))), MemoryRequest: unit.Bytes(gibs * float64(gib)),
	}
}

// cpuPod is a batch pod that uses and requests CPUs.
func cpuPod(name string, used, request unit.MilliCPU) evict.Pod {
	p := bePod(name, 1)
	p.CPUUsed, p.CPURequest = unit.Got(used), request
	return p
}

func change(p evict.Pod, f func(*evict.Pod)) evict.Pod { f(&p); return p }

// lsPod is a prod pod that agrees to be evicted.
func lsPod(name string, gibs float64) evict.Pod {
	return change(bePod(name, gibs), func(p *evict.Pod) {
		p.BE, p.Band, p.Priority, p.EvictionEnabled = false, protocol.PriorityProd, 9500, true
	})
}

func names(out evict.Output) string {
	var all []string
	for _, e := range out.Evictions {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

func reasons(out evict.Output) string {
	var all []string
	for _, d := range out.Decisions {
		all = append(all, d.Feature.String()+": "+d.Reason)
	}
	return strings.Join(all, "\n")
}

// memoryOf is a node of 128 GiB with a threshold of 75 %, as in M5.
func memoryOf(used float64, pods ...evict.Pod) evict.Input {
	return evict.Input{
		Now: 100 * unit.Second, Features: evict.All, Pods: pods,
		Strategy: thresholds(func(t *strategy.ResourceThresholdStrategy) { t.MemoryEvictThresholdPercent = num(75) }),
		Memory:   evict.Memory{Capacity: 128 * gib, Used: unit.Got(unit.Bytes(used * float64(gib)))},
	}
}

// listed is the same where so much of what counts as used is free on lists of the CPUs.
func listed(used, free float64, pods ...evict.Pod) evict.Input {
	in := memoryOf(used, pods...)
	in.Memory.PerCPU = unit.Bytes(free * float64(gib))
	return in
}

func TestBEMemory(t *testing.T) {
	t.Parallel()
	eight, six, four := bePod("eight", 8), bePod("six", 6), bePod("four", 4)
	for name, tc := range map[string]struct {
		in     evict.Input
		want   string
		reason string
	}{
		"A5 at the threshold":         {in: memoryOf(96, eight, six, four), reason: "node memory 96 GiB of 128 GiB (75%) is not above 75%"},
		"A6":                          {in: memoryOf(104, four, eight, six, lsPod("ls", 60)), want: "eight six", reason: "is above 75%, down to 73%: release 10.56 GiB: 2 victims with 14 GiB"},
		"free on lists of CPUs":       {in: listed(104, 8, eight, six, four), reason: "node memory 96 GiB of 128 GiB (75%) without 8 GiB on free lists of CPUs is not above 75%"},
		"the rest is too much":        {in: listed(106, 8, eight, six, four), want: "eight", reason: "node memory 98 GiB of 128 GiB (76.56%) without 8 GiB on free lists of CPUs is above 75%, down to 73%: release 4.56 GiB"},
		"lowest priority first":       {in: memoryOf(97, eight, change(four, func(p *evict.Pod) { p.Priority = 5000 })), want: "four"},
		"eviction priority before it": {in: memoryOf(97, change(eight, func(p *evict.Pod) { p.EvictionPriority = -1 }), change(four, func(p *evict.Pod) { p.Priority = 5000 })), want: "eight"},
		"sub-priority after it":       {in: memoryOf(97, eight, change(six, func(p *evict.Pod) { p.SubPriority = -1 })), want: "six"},
		"label not needed":            {in: memoryOf(104, eight), want: "eight", reason: "2.56 GiB cannot be released"},
		"nobody unmeasured": {
			in:     memoryOf(104, change(eight, func(p *evict.Pod) { p.MemoryUsed.OK = false }), change(six, func(p *evict.Pod) { p.MemoryUsed.V = 0 })),
			reason: "0 victims with 0 B, 10.56 GiB cannot be released",
		},
		"eviction-policy": {
			in:   memoryOf(104, change(eight, func(p *evict.Pod) { p.Allowed = evict.Features(0).With(evict.CPUEvict) }), six, four),
			want: "six four", reason: "573.44 MiB cannot be released (1 pod spared: its eviction-policy does not name BEMemoryEvict)",
		},
		"static pod":            {in: memoryOf(104, change(eight, func(p *evict.Pod) { p.Unevictable = "static pod" }), six, four), want: "six four", reason: "static pod"},
		"refused by its budget": {in: memoryOf(104, change(eight, func(p *evict.Pod) { p.Held = evict.ByBudget }), six, four), want: "six four"},
		"failed a moment ago":   {in: memoryOf(104, change(eight, func(p *evict.Pod) { p.Held = evict.ByFailure }), six, four), want: "six four", reason: "its last eviction has failed"},
		"spares whom a later victim makes unnecessary": {
			in:   memoryOf(104, change(four, func(p *evict.Pod) { p.Priority = 5000 }), bePod("twelve", 12), six),
			want: "twelve",
		},
		"spares the more important of two": {
			in: memoryOf(104, change(bePod("a", 2), func(p *evict.Pod) { p.Priority = 5000 }), change(bePod("b", 2), func(p *evict.Pod) { p.Priority = 5001 }),
				bePod("c", 9)),
			want: "a c",
		},
		"leaving pods count": {
			in:     memoryOf(104, change(eight, func(p *evict.Pod) { p.Leaving, p.LeavingSince = true, 95*unit.Second }), six, four),
			want:   "six",
			reason: "release 10.56 GiB, of which leaving pods hold 8 GiB: 1 victim with 6 GiB",
		},
		"leaving pods suffice": {
			in:     memoryOf(104, change(lsPod("ls", 20), func(p *evict.Pod) { p.Leaving = true }), six, four),
			reason: "leaving pods hold 20 GiB: nothing more to do",
		},
		"a stuck pod does not count": {
			in:   memoryOf(104, change(eight, func(p *evict.Pod) { p.Leaving, p.LeavingSince = true, -21*unit.Second }), six, four, bePod("two", 2)),
			want: "six four two",
		},
		"not measured":   {in: with(memoryOf(104, eight), func(in *evict.Input) { in.Memory.Used.OK = false }), reason: "not measured"},
		"no capacity":    {in: with(memoryOf(104, eight), func(in *evict.Input) { in.Memory.Capacity = 0 }), reason: "not measured"},
		"gate off":       {in: with(memoryOf(104, eight), func(in *evict.Input) { in.Features = evict.All &^ evict.Features(0).With(evict.BEMemoryEvict) })},
		"A9 not enabled": {in: with(memoryOf(104, eight), func(in *evict.Input) { in.Strategy.Enable = new(bool) })},
		"nothing known":  {in: evict.Input{Strategy: thresholds(nil), Features: evict.All}, reason: "not measured"},
		"lower above the threshold is the threshold": {
			in:   with(memoryOf(104, eight), func(in *evict.Input) { in.Strategy.MemoryEvictLowerPercent = num(90) }),
			want: "eight", reason: "down to 75%: release 8 GiB: 1 victim",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, out := evict.Step(evict.State{}, tc.in)
			if got := names(out); got != tc.want {
				t.Errorf("victims %q, want %q\n%s", got, tc.want, reasons(out))
			}
			if !strings.Contains(reasons(out), tc.reason) {
				t.Errorf("reasons\n%s\nwant %q", reasons(out), tc.reason)
			}
			for _, e := range out.Evictions {
				if e.Feature != evict.BEMemoryEvict || !e.RespectBudget || e.Memory <= 0 || !strings.HasPrefix(e.Reason, "BEMemoryEvict: node memory ") {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

func with(in evict.Input, f func(*evict.Input)) evict.Input { f(&in); return in }

// TestUnits is the documented example, and upstream's bug: one victim must not count a thousand times.
func TestUnits(t *testing.T) {
	t.Parallel()
	in := memoryOf(0, lsPod("a", 1), lsPod("b", 2), lsPod("c", 2), lsPod("d", 4), lsPod("e", 3))
	in.Strategy = thresholds(func(t *strategy.ResourceThresholdStrategy) { t.EvictEnabledPriorityThreshold = prio(9999) })
	in.Memory = evict.Memory{Capacity: 100 * gib, Used: unit.Got(75 * gib)}
	_, out := evict.Step(evict.State{}, in)
	want := []evict.Decision{
		{Feature: evict.BEMemoryEvict, Over: true, Rest: evict.Needed, Memory: evict.Demand[unit.Bytes]{Release: 7 * gib, Left: 7 * gib}},
		{Feature: evict.MemoryEvict, Over: true, Rest: evict.Needed, Memory: evict.Demand[unit.Bytes]{Release: 7 * gib, Chosen: 7 * gib, Left: 7 * gib}},
	}
	for i := range out.Decisions {
		out.Decisions[i].Reason = ""
	}
	if d := cmp.Diff(want, out.Decisions); d != "" || names(out) != "d e" {
		t.Errorf("victims %q (-want +got):\n%s", names(out), d)
	}
}

func TestMemoryByPriority(t *testing.T) {
	t.Parallel()
	in := memoryOf(104, lsPod("unwilling", 20), lsPod("first", 4), lsPod("second", 9), lsPod("high", 30), bePod("be", 1))
	in.Pods[0].EvictionEnabled = false
	in.Pods[1].Priority, in.Pods[2].Priority, in.Pods[3].Priority = 7000, 8000, 9501
	in.Strategy.EvictEnabledPriorityThreshold = prio(9500)
	in.Features = evict.Features(0).With(evict.MemoryEvict)
	_, out := evict.Step(evict.State{}, in)
	if names(out) != "first second" {
		t.Errorf("%q\n%s", names(out), reasons(out))
	}
	// The BE feature goes before and its victims count.
	in.Features = evict.All
	in.Pods[4] = bePod("be", 8)
	if _, out = evict.Step(evict.State{}, in); names(out) != "be first" {
		t.Errorf("%q\n%s", names(out), reasons(out))
	}
	in.Strategy.EvictEnabledPriorityThreshold = nil
	if _, out = evict.Step(evict.State{}, in); names(out) != "be" || len(out.Decisions) != 1 {
		t.Errorf("without a priority threshold: %q\n%s", names(out), reasons(out))
	}
}

func TestDanger(t *testing.T) {
	t.Parallel()
	in := memoryOf(126, change(bePod("refused", 20), func(p *evict.Pod) { p.Held = evict.ByBudget }), bePod("other", 10),
		change(bePod("failed", 30), func(p *evict.Pod) { p.Held = evict.ByFailure }))
	in.Memory.Reclaiming = true
	rested := evict.State{MemoryAt: 99 * unit.Second}
	if _, out := evict.Step(rested, in); names(out) != "" || !strings.Contains(reasons(out), "waits, the last round was 1 s ago, pause of 4 s") {
		t.Errorf("%q\n%s", names(out), reasons(out))
	}
	in.Danger = "80 MiB of memory are available"
	s, out := evict.Step(rested, in)
	if names(out) != "refused other" || s.MemoryAt != in.Now || out.Danger != in.Danger {
		t.Errorf("%q\n%s", names(out), reasons(out))
	}
	for _, e := range out.Evictions {
		if e.RespectBudget || !strings.HasSuffix(e.Reason, "the node is in danger: 80 MiB of memory are available") {
			t.Errorf("%+v", e)
		}
	}
	in.Memory.Used = unit.Got(90 * gib)
	if _, out = evict.Step(evict.State{}, in); names(out) != "" {
		t.Errorf("below the threshold: %q", names(out))
	}
}

func TestReclaimGoesFirst(t *testing.T) {
	t.Parallel()
	in := memoryOf(104, bePod("a", 8), bePod("b", 6))
	in.Memory.Reclaiming = true
	s, victims := evict.State{}, ""
	for i := range 5 {
		in.Now += unit.Second
		var out evict.Output
		if s, out = evict.Step(s, in); names(out) != "" {
			victims += names(out) + " after " + string(rune('0'+i)) + " s"
			break
		}
	}
	if victims != "a b after 3 s" {
		t.Errorf("%q", victims)
	}
	// Use that falls below in between begins the wait anew.
	s = evict.State{}
	for range 6 {
		for _, used := range []unit.Bytes{104 * gib, 104 * gib, 90 * gib} {
			in.Now += unit.Second
			in.Memory.Used = unit.Got(used)
			var out evict.Output
			if s, out = evict.Step(s, in); names(out) != "" {
				t.Fatalf("evicted %s while reclaim works", names(out))
			}
		}
	}
}

func TestPausesAndClock(t *testing.T) {
	t.Parallel()
	in := memoryOf(104, bePod("a", 2), bePod("b", 2), bePod("c", 2))
	s, out := evict.Step(evict.State{}, in)
	if names(out) != "a b c" {
		t.Fatalf("%q", names(out))
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back evict.State
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, s) {
		t.Fatalf("%s: %+v, %v", data, back, err)
	}
	in.Pods = append(in.Pods[:0], bePod("d", 2))
	for _, step := range []struct {
		after unit.Micros
		want  string
	}{{2 * unit.Second, ""}, {2 * unit.Second, "d"}} {
		in.Now += step.after
		if s, out = evict.Step(s, in); names(out) != step.want {
			t.Errorf("%q, want %q: %s", names(out), step.want, reasons(out))
		}
	}
	in.Now, in.MemoryPause = unit.Second, unit.Minute
	if s, out = evict.Step(s, in); names(out) != "d" {
		t.Errorf("another clock: %q", names(out))
	}
	in.Now += 59 * unit.Second
	if _, out = evict.Step(s, in); names(out) != "" {
		t.Errorf("configured pause: %q", names(out))
	}
}

// TestRefusedRoundsArePassedOver: whoever is refused is followed by the next candidate, however many are, and not by the first one again.
func TestRefusedRoundsArePassedOver(t *testing.T) {
	t.Parallel()
	for name, base := range map[string]evict.Input{
		"memory": memoryOf(97, bePod("a", 8), bePod("b", 7), bePod("c", 6), bePod("d", 5)),
		"CPU":    starving(cpuPod("a", 4000, 5000), cpuPod("b", 3000, 5000), cpuPod("c", 2000, 5000), cpuPod("d", 1000, 5000)),
	} {
		in, s, got := base, evict.State{}, []string(nil)
		for second := range 5 {
			in.Now += unit.Second
			var out evict.Output
			s, out = evict.Step(s, in)
			for i := range in.Pods {
				if p := &in.Pods[i]; second < 3 && strings.Contains(names(out), p.Name) {
					p.Held = evict.ByBudget // the fourth is not answered
				}
			}
			got = append(got, names(out))
		}
		if want := []string{"a", "b", "c", "d", ""}; !slices.Equal(got, want) {
			t.Errorf("%s: victims by second %q, want %q", name, got, want)
		}
	}
}

// TestOnlyBudgetsEndThePause: who failed, or goes for another reason although its budget has refused it, is waited for like one of whom no answer is known.
func TestOnlyBudgetsEndThePause(t *testing.T) {
	t.Parallel()
	for name, base := range map[string]evict.Input{
		"memory": memoryOf(97, bePod("a", 8), bePod("b", 8)),
		"CPU":    starving(cpuPod("a", 4000, 5000), cpuPod("b", 4000, 5000)),
	} {
		for answer, edit := range map[string]func(*evict.Pod){
			"failed": func(p *evict.Pod) { p.Held = evict.ByFailure },
			// Beyond patience, so that what it holds no longer counts as released.
			"refused, leaving": func(p *evict.Pod) { p.Held, p.Leaving, p.LeavingSince = evict.ByBudget, true, -unit.Minute },
		} {
			in := base
			in.Pods = slices.Clone(base.Pods)
			s, out := evict.Step(evict.State{}, in)
			first := names(out)
			for i := range in.Pods {
				if in.Pods[i].Name == first {
					edit(&in.Pods[i])
				}
			}
			in.Now += unit.Second
			if _, out = evict.Step(s, in); first == "" || names(out) != "" {
				t.Errorf("%s, %s: after %q at once %q", name, answer, first, names(out))
			}
		}
	}
}
