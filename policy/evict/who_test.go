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

// A feature lacks something exactly when an enabled strategy is not enough for it, whichever fields are set.
func TestLacks(t *testing.T) {
	t.Parallel()
	percent, priority := int64(50), int32(5999)
	for set := range 1 << 8 {
		var s strategy.ResourceThresholdStrategy
		for i, field := range []**int64{
			&s.MemoryEvictThresholdPercent, &s.MemoryAllocatableEvictThresholdPercent, &s.CPUAllocatableEvictThresholdPercent,
			&s.CPUEvictThresholdPercent, &s.CPUEvictPSIThresholdPercent, &s.CPUEvictBESatisfactionLowerPercent,
		} {
			if set>>i&1 == 1 {
				*field = &percent
			}
		}
		if set>>6&1 == 1 {
			s.EvictEnabledPriorityThreshold, s.CPUEvictBESatisfactionUpperPercent = &priority, &percent
		}
		if set>>7&1 == 1 {
			s.AllocatableEvictPriorityThreshold = &priority
		}
		on := true
		s.Enable = &on
		for f := range evict.NumFeatures {
			if lacks := evict.Lacks(&s, f); (len(lacks) == 0) != evict.Wanted(&s).Has(f) {
				t.Errorf("%s lacks %v of %+v", f, lacks, s)
			}
		}
	}
}

// TestBestEffort: the label, as upstream has it, or no label, no requests and a class that is lent resources (M16).
func TestBestEffort(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		class protocol.QoS
		kube  protocol.KubeQoS
		band  protocol.PriorityClass
		want  bool
	}{
		"label":                        {protocol.QoSBE, protocol.KubeBurstable, protocol.PriorityNone, true},
		"label of another class":       {protocol.QoSLS, protocol.KubeBestEffort, protocol.PriorityBatch, false},
		"M16, koord-batch":             {protocol.QoSNone, protocol.KubeBestEffort, protocol.PriorityBatch, true},
		"koord-free":                   {protocol.QoSNone, protocol.KubeBestEffort, protocol.PriorityFree, true},
		"koord-mid":                    {protocol.QoSNone, protocol.KubeBestEffort, protocol.PriorityMid, false},
		"koord-prod":                   {protocol.QoSNone, protocol.KubeBestEffort, protocol.PriorityProd, false},
		"M2, and whoever says nothing": {protocol.QoSNone, protocol.KubeBestEffort, protocol.PriorityNone, false},
		"koord-batch with requests":    {protocol.QoSNone, protocol.KubeBurstable, protocol.PriorityBatch, false},
	} {
		if got := evict.BestEffort(tc.class, tc.kube, tc.band); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestNeverVictims: above Koordinator's bands nobody goes, whatever rule asks and however they are labelled; of koord-prod
// nobody goes by the rules of the best-effort tier.
func TestNeverVictims(t *testing.T) {
	t.Parallel()
	prod := change(bePod("prod", 20), func(p *evict.Pod) { p.Band, p.Priority, p.EvictionEnabled = protocol.PriorityProd, 9500, true })
	high := change(bePod("m2", 20), func(p *evict.Pod) { p.Priority, p.EvictionEnabled = 100000, true })
	system := change(lsPod("system", 20), func(p *evict.Pod) { p.Priority = 2000001000 })
	for name, tc := range map[string]struct {
		features evict.Features
		want     string
		reason   string
	}{
		"by the tier":  {evict.Features(0).With(evict.BEMemoryEvict), "batch", "2 pods spared: its priority"},
		"by priority":  {evict.Features(0).With(evict.MemoryEvict), "prod", "2 pods spared: its priority is above all classes"},
		"by all rules": {evict.All, "batch prod", ""},
	} {
		in := memoryOf(126, prod, high, system, bePod("batch", 1))
		in.Features, in.Strategy.EvictEnabledPriorityThreshold = tc.features, prio(2147483647)
		in.Danger = "none is left"
		_, out := evict.Step(evict.State{}, in)
		if names(out) != tc.want || !strings.Contains(reasons(out), tc.reason) {
			t.Errorf("%s: %q\n%s", name, names(out), reasons(out))
		}
	}
	in := starving(change(cpuPod("prod", 4000, 6000), func(p *evict.Pod) { p.Band, p.Priority = protocol.PriorityProd, 9000 }), cpuPod("batch", 1000, 4000))
	if _, out := evict.Step(evict.State{}, in); names(out) != "batch" {
		t.Errorf("CPU: %q\n%s", names(out), reasons(out))
	}
}

// TestBookingIsNoDanger: what is booked frees no memory by itself, so a node in danger passes neither budgets nor pauses for it.
func TestBookingIsNoDanger(t *testing.T) {
	t.Parallel()
	in := memoryOf(126, bePod("uses", 40), change(bePod("books", 1), func(p *evict.Pod) {
		p.BE, p.EvictionEnabled, p.MemoryRequest = false, true, 30*gib
	}), change(bePod("refused", 2), func(p *evict.Pod) {
		p.BE, p.EvictionEnabled, p.MemoryRequest, p.Held = false, true, 40*gib, evict.ByBudget
	}))
	in.Strategy = thresholds(func(t *strategy.ResourceThresholdStrategy) {
		t.MemoryEvictThresholdPercent, t.MemoryAllocatableEvictThresholdPercent, t.AllocatableEvictPriorityThreshold = num(75), num(110), prio(7999)
	})
	in.Memory.BatchAllocatable = unit.Got(20 * gib)
	in.Danger = "80 MiB of memory are available"
	_, out := evict.Step(evict.State{}, in)
	if names(out) != "uses books" || out.Evictions[0].RespectBudget || !out.Evictions[1].RespectBudget || strings.Contains(out.Evictions[1].Reason, "danger") {
		t.Errorf("%q: %+v", names(out), out.Evictions)
	}
	in.Pods[0].Leaving = true
	if _, out = evict.Step(evict.State{MemoryAt: in.Now - unit.Second}, in); names(out) != "" || !strings.Contains(reasons(out), "MemoryAllocatableEvict: koord-batch pods request") {
		t.Errorf("in the pause: %q\n%s", names(out), reasons(out))
	}
}

// TestBookingOfWhoLeaves: what a leaving pod has booked will be free, whether or not its owner had agreed to an eviction.
func TestBookingOfWhoLeaves(t *testing.T) {
	t.Parallel()
	batch := func(name string, request unit.MilliCPU, agreed bool) evict.Pod {
		return change(cpuPod(name, 0, request), func(p *evict.Pod) { p.EvictionEnabled = agreed })
	}
	in := starving(asked(batch("a", 6000, false)), batch("b", 4000, true), batch("c", 4000, true))
	in.Strategy = thresholds(func(t *strategy.ResourceThresholdStrategy) {
		t.CPUAllocatableEvictThresholdPercent, t.CPUAllocatableEvictLowerPercent, t.AllocatableEvictPriorityThreshold = num(110), num(100), prio(5999)
	})
	in.CPU.BatchAllocatable = unit.Got[unit.MilliCPU](10000)
	_, out := evict.Step(evict.State{}, in)
	if names(out) != "" || !strings.Contains(reasons(out), "release 4 CPUs, of which leaving pods hold 6 CPUs: nothing more to do") {
		t.Errorf("%q\n%s", names(out), reasons(out))
	}
	in.Pods[0].Leaving = false // it stays then, and has not agreed
	if _, out = evict.Step(evict.State{}, in); names(out) != "b" {
		t.Errorf("%q\n%s", names(out), reasons(out))
	}
}

// TestPatienceInDanger: a pod that does not go for half a minute is not counted on any more when the node is in danger.
func TestPatienceInDanger(t *testing.T) {
	t.Parallel()
	in := memoryOf(126, change(bePod("slow", 40), func(p *evict.Pod) { p.Leaving, p.LeavingSince = true, 65*unit.Second }), bePod("next", 40))
	if _, out := evict.Step(evict.State{}, in); names(out) != "" {
		t.Errorf("calm: %q\n%s", names(out), reasons(out))
	}
	in.Danger = "none is left"
	if _, out := evict.Step(evict.State{}, in); names(out) != "next" {
		t.Errorf("in danger: %q\n%s", names(out), reasons(out))
	}
	in.Pods[0].LeavingSince = 75 * unit.Second
	if _, out := evict.Step(evict.State{}, in); names(out) != "" {
		t.Errorf("in danger, leaving for 25 s: %q\n%s", names(out), reasons(out))
	}
}
