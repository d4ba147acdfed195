// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package sysctl decides the node-wide kernel parameters of systemStrategy. A field that is not given is not written.
//
//	vm.min_free_kbytes          memory in KiB × minFreeKbytesFactor / 10000, held within 1024 and a twentieth of the memory:
//	                            more would leave nothing to programs (Documentation/admin-guide/sysctl/vm.rst)
//	vm.watermark_scale_factor   watermarkScaleFactor, 1 … 400, in 0.01 % of the memory (the same page)
//
// The other fields name files of vendor kernels and of debugfs, which are not written; who asks for them is told so.
//
// What a parameter was before is kept from the first step that changes it; when the strategy no longer names it, the old
// value is given back, unless somebody else has changed it meanwhile. A value that somebody else sets is set again, ten times;
// then it is theirs until the strategy says another one, because a program that tunes the node would win every second anyway.
//
// Example: 128 GiB and factor 100 give 134217728 × 100 / 10000 = 1342177 KiB.
//
// Input is an Input with the parameters as they stand, and the State of the step before; output a plan with reasons. It
// imports model, api, policy/figure, policy/lent and the standard library only; never os, net, log, fmt or time.
package sysctl

import (
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
	"github.com/koord-rt/koord-rt/policy/lent"
)

// Knobs are the parameters, all of [plan.LevelNode].
func Knobs() []plan.Knob { return []plan.Knob{plan.VMMinFree, plan.VMWatermarkScale} }

// Input is what one step looks at.
type Input struct {
	Strategy strategy.SystemStrategy
	// Memory of the node.
	Memory unit.Bytes
	// Current are the values in force. A parameter that is missing does not exist on this kernel.
	Current map[plan.Knob]int64
}

// State is what a step leaves for the next; it survives a restart of the agent as JSON.
type State struct {
	Held []Held `json:"held,omitempty"`
}

// Held is a parameter that we have changed.
type Held = lent.Held[int64]

func same(want, stands int64) bool { return want == stands }

// Output of a step.
type Output struct {
	// Plan has what differs from what is in force; nil means that nothing is to be written.
	Plan plan.Plan
	// Problems name the fields of the strategy that cannot act, and why.
	Problems []string
	// Reason is what is held and why, also where it is in force already; empty for nothing.
	Reason string
}

// Step decides once.
func Step(s State, in Input) (State, Output) {
	w := &work{in: &in, s: &s}
	w.want()
	w.vendor()
	w.next.Held = lent.Back(s.Held, w.next.Held, func(k plan.Knob, _ string) (int64, bool) { now, ok := in.Current[k]; return now, ok }, same,
		func(k plan.Knob, h *Held) {
			const reason = "the strategy no longer names it: back to what it was"
			w.set(k, h.Original, reason)
			w.tell(k, h.Original, reason)
		})
	return w.next, w.out
}

// work is one step in progress.
type work struct {
	in   *Input
	s    *State
	next State
	out  Output
}

func (w *work) set(k plan.Knob, n int64, reason string) {
	w.out.Plan = append(w.out.Plan, plan.Setting{
		Target: plan.Target{Level: plan.LevelNode}, Knob: k, Value: plan.Int(n), Owner: protocol.FeatureMemory, Reason: reason,
	})
}

// tell adds to the Reason.
func (w *work) tell(k plan.Knob, n int64, reason string) {
	if w.out.Reason != "" {
		w.out.Reason += "; "
	}
	w.out.Reason += k.String() + " " + strconv.FormatInt(n, 10) + ": " + reason
}

// hold wants a value; field is the strategy's.
func (w *work) hold(k plan.Knob, n int64, field, reason string) {
	now, ok := w.in.Current[k]
	if !ok {
		w.problem(field, "this kernel has no "+k.String())
		return
	}
	h, keep := lent.Want(lent.Find(w.s.Held, k, ""), k, "", n, now, now, same)
	if keep {
		w.next.Held = append(w.next.Held, h)
	}
	switch {
	case h.Stood:
	case h.Left():
		w.problem(field, "somebody else sets "+k.String()+" to "+strconv.FormatInt(now, 10)+" again and again: it is left to them")
		return
	case h.Lost > 0:
		w.set(k, n, reason+"; somebody else had set "+strconv.FormatInt(now, 10))
	default:
		w.set(k, n, reason)
	}
	w.tell(k, n, reason)
}

func (w *work) problem(field, why string) {
	w.out.Problems = append(w.out.Problems, "systemStrategy."+field+": "+why)
}

// want walks the strategy's fields in their order.
func (w *work) want() {
	t := &w.in.Strategy
	if t.MinFreeKbytesFactor != nil {
		w.minFree(*t.MinFreeKbytesFactor)
	}
	if n := t.WatermarkScaleFactor; n != nil {
		const field = "watermarkScaleFactor"
		value, reason := min(max(*n, 1), 400), field // the validator has refused others: one from elsewhere is held
		if value != *n {
			reason += " " + strconv.FormatInt(*n, 10) + " held within 1 and 400"
		}
		w.hold(plan.VMWatermarkScale, value, field, reason)
	}
}

// vendor tells of the fields that are not written.
func (w *work) vendor() {
	t := &w.in.Strategy
	for _, f := range [...]struct {
		name  string
		given bool
	}{
		{"memcgReapBackGround", t.MemcgReapBackGround != nil},
		{"schedGroupIdentityEnabled", t.SchedGroupIdentityEnabled != nil},
		{"schedIdleSaverWmark", t.SchedIdleSaverWmark != nil},
		{"schedFeatures", len(t.SchedFeatures) > 0},
		{"pageCacheLimitEnabled", t.PageCacheLimitEnabled != nil},
	} {
		if f.given {
			w.problem(f.name, "not written by koord-rt: the file is a vendor kernel's, or for debugging")
		}
	}
}

// minFree computes vm.min_free_kbytes.
func (w *work) minFree(factor int64) {
	const field = "minFreeKbytesFactor"
	if w.in.Memory <= 0 || factor <= 0 {
		w.problem(field, "the node's memory is not known, or the factor is not positive")
		return
	}
	// Percent.Of is amount × factor / 100 without overflow; a hundredth of a KiB count stays exact enough by going last.
	kib := int64(unit.Percent(factor).Of(w.in.Memory/1024)) / 100
	most := int64(w.in.Memory / 1024 / 20)
	value := max(min(kib, most), 1024)
	reason := field + " " + strconv.FormatInt(factor, 10) + " of " + figure.Bytes(w.in.Memory)
	switch {
	case value < kib:
		reason += ", held at a twentieth of the memory"
	case value > kib:
		reason += ", raised to the kernel's least"
	}
	w.hold(plan.VMMinFree, value, field, reason)
}
