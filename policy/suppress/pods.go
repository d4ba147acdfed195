// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// podLeast is what an antagonist keeps.
const podLeast = unit.MilliCPU(100)

// PodCap holds one pod to Limit.
type PodCap struct {
	Pod   string        `json:"pod"` // UID
	Limit unit.MilliCPU `json:"limit"`
	// Asked is the cap of interference detection at that time, 0 for none.
	Asked  unit.MilliCPU `json:"asked,omitempty"`
	Reason string        `json:"reason"`
}

// take lets the antagonists give up amount together, the worst first, and returns what they could.
func (w *work) take(amount unit.MilliCPU) unit.MilliCPU {
	left := amount
	for i := range w.in.Antagonists {
		part := min(left, max(w.in.Antagonists[i].Used-w.taken[i]-podLeast, 0))
		if part > 0 {
			w.taken[i] += part
			left -= part
		}
	}
	return amount - left
}

// pods decides the antagonists' caps: what the tier uses above its new bound comes out of their share first. As long as a
// pod is named its cap rises only when interference detection raises its own, and it moves only by a tenth or more.
func (w *work) pods(next *State) {
	if len(w.in.Antagonists) == 0 {
		return
	}
	if used, ok := w.beUsed(); ok {
		bound := unit.MilliCPU(next.CPUs.Len()) * milliPerCPU
		if next.Mode == Quota {
			bound = unit.MilliFromQuota(next.Quota, unit.CFSPeriod)
		}
		for _, t := range w.taken {
			used -= t
		}
		w.take(max(used-bound, 0))
	}
	for i := range w.in.Antagonists {
		a := &w.in.Antagonists[i]
		if limit, why, ok := w.podCap(a, w.taken[i]); ok {
			next.Pods = append(next.Pods, PodCap{a.Pod, limit, a.Cap, why})
		}
	}
	slices.SortFunc(next.Pods, func(a, b PodCap) int { return cmp.Compare(a.Pod, b.Pod) })
	next.Pods = slices.CompactFunc(next.Pods, func(a, b PodCap) bool { return a.Pod == b.Pod })
	if n := len(next.Pods); n > 0 {
		w.note(figure.Count(n, "pod") + " throttled first for disturbing others")
	}
}

// podCap is the lowest of what interference detection asks, what is taken now and what was in force.
func (w *work) podCap(a *Antagonist, taken unit.MilliCPU) (limit unit.MilliCPU, why string, ok bool) {
	if a.Cap > 0 {
		limit, why, ok = max(a.Cap, podLeast), "cap of interference detection", true
	}
	if now := a.Used - taken; taken > 0 && (!ok || now < limit) {
		limit, ok = max(now, podLeast), true
		why = "gives up " + figure.Cores(taken) + " of " + figure.CPUs(a.Used) + ", because it disturbs others"
	}
	i := slices.IndexFunc(w.s.Pods, func(p PodCap) bool { return p.Pod == a.Pod })
	if i < 0 {
		return limit, why, ok
	}
	prev := &w.s.Pods[i]
	raised := ok && prev.Asked > 0 && a.Cap > prev.Asked
	if !raised && (!ok || limit > prev.Limit-prev.Limit/10) {
		return prev.Limit, prev.Reason, true
	}
	return limit, why, ok
}

// samePods compares what is in force, not why.
func samePods(a, b []PodCap) bool {
	return slices.EqualFunc(a, b, func(x, y PodCap) bool {
		return x.Pod == y.Pod && x.Limit == y.Limit
	})
}
