// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package sysctl decides the node-wide kernel parameters of systemStrategy. A field that is not given is not written.
//
//	vm.min_free_kbytes          memory in KiB × minFreeKbytesFactor / 10000, held within 1024 and a twentieth of the memory:
//	                            more would leave nothing to programs (Documentation/admin-guide/sysctl/vm.rst)
//	vm.watermark_scale_factor   watermarkScaleFactor, 1 … 400, in 0.01 % of the memory (the same page)
//	sched.features              schedFeatures, one NAME or NO_NAME each (debugfs sched/features)
//	vendor kernels              memcgReapBackGround 0 … 1, pageCacheLimitEnabled 0 … 1, schedGroupIdentityEnabled 0 … 1,
//	                            schedIdleSaverWmark in ns
//
// What a parameter was before is kept from the first step that changes it; when the strategy no longer names it, the old
// value is given back, unless somebody else has changed it meanwhile.
//
// Example: 128 GiB and factor 100 give 134217728 × 100 / 10000 = 1342177 KiB.
//
// Input is an Input with the parameters as they stand, and the State of the step before; output the values to write with
// reasons. It imports model/unit, api/strategy, policy/figure and the standard library only; never os, net, log, fmt or
// time.
package sysctl

import (
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Parameter is one kernel parameter; kernel/* knows its file.
type Parameter uint8

// The parameters with the file that each one stands for.
const (
	// MinFreeKbytes is /proc/sys/vm/min_free_kbytes, WatermarkScaleFactor /proc/sys/vm/watermark_scale_factor.
	MinFreeKbytes Parameter = iota
	WatermarkScaleFactor
	// MemcgReapBackground is /sys/kernel/mm/memcg_reaper/reap_background, PageCacheLimit
	// /sys/kernel/mm/pagecache_limit/enabled.
	MemcgReapBackground
	PageCacheLimit
	// SchedGroupIdentity is /proc/sys/kernel/sched_group_identity_enabled, SchedIdleSaverWmark
	// /proc/sys/kernel/sched_idle_saver_wmark.
	SchedGroupIdentity
	SchedIdleSaverWmark
	// SchedFeature is one switch in /sys/kernel/debug/sched/features (sched_features before 5.13), by its key.
	SchedFeature
	// NumParameters is their number.
	NumParameters
)

var names = [NumParameters]string{
	"vm.min_free_kbytes", "vm.watermark_scale_factor", "memcg_reaper.reap_background", "pagecache_limit.enabled",
	"kernel.sched_group_identity_enabled", "kernel.sched_idle_saver_wmark", "sched.features",
}

// String is the parameter's name.
func (p Parameter) String() string {
	if p >= NumParameters {
		return "unknown"
	}
	return names[p]
}

// Value is a parameter's.
type Value struct {
	Parameter Parameter `json:"parameter"`
	// Key is the feature's name without NO_ for SchedFeature, else empty.
	Key string `json:"key,omitempty"`
	// Text is what the file holds, or takes: for SchedFeature NAME or NO_NAME.
	Text string `json:"text"`
}

// Input is what one step looks at.
type Input struct {
	Strategy strategy.SystemStrategy
	// Memory of the node.
	Memory unit.Bytes
	// Current are the values in force, for SchedFeature one with the whole file and no key. A parameter that is missing does
	// not exist on this kernel.
	Current []Value
}

// State is what a step leaves for the next; it must survive a restart of the agent.
type State struct {
	Held []Held `json:"held,omitempty"`
}

// Held is a parameter that we have changed.
type Held struct {
	// Ours is the value that we wrote, Original what stood there before.
	Ours     Value  `json:"ours"`
	Original string `json:"original"`
}

// Setting is one value to write.
type Setting struct {
	Value
	Reason string
}

// Output of a step.
type Output struct {
	// Settings differ from what is in force; an empty list means that nothing is to be written.
	Settings []Setting
	// Problems name the fields of the strategy that cannot act, and why.
	Problems []string
}

// Step decides once.
func Step(s State, in Input) (State, Output) {
	w := &work{in: &in, s: &s}
	w.want()
	for _, h := range s.Held {
		i := slices.IndexFunc(w.wanted, func(x Setting) bool { return x.same(h.Ours) })
		if i >= 0 {
			continue
		}
		if now, ok := w.current(h.Ours); ok && now == h.Ours.Text && now != h.Original {
			w.out.Settings = append(w.out.Settings, Setting{
				Value{h.Ours.Parameter, h.Ours.Key, h.Original}, "the strategy no longer names it: back to what it was",
			})
		}
	}
	return w.next, w.out
}

func (v Value) same(o Value) bool { return v.Parameter == o.Parameter && v.Key == o.Key }

// work is one step in progress.
type work struct {
	in     *Input
	s      *State
	next   State
	wanted []Setting
	out    Output
}

// current is the value in force.
func (w *work) current(v Value) (string, bool) {
	for i := range w.in.Current {
		c := &w.in.Current[i]
		if c.Parameter != v.Parameter {
			continue
		}
		if v.Parameter != SchedFeature {
			return strings.TrimSpace(c.Text), true
		}
		for _, token := range strings.Fields(c.Text) {
			if strings.TrimPrefix(token, "NO_") == v.Key {
				return token, true
			}
		}
	}
	return "", false
}

// set wants a value; field is the strategy's.
func (w *work) set(p Parameter, key, text, field, reason string) {
	v := Value{p, key, text}
	now, ok := w.current(v)
	if !ok {
		what := p.String()
		if key != "" {
			what += " " + key
		}
		w.out.Problems = append(w.out.Problems, "systemStrategy."+field+": this kernel has no "+what)
		return
	}
	s := Setting{v, reason}
	w.wanted = append(w.wanted, s)
	original := now
	held := false
	for _, h := range w.s.Held {
		if h.Ours.same(v) {
			original, held = h.Original, true
		}
	}
	if held || now != text {
		w.next.Held = append(w.next.Held, Held{v, original})
	}
	if now != text {
		w.out.Settings = append(w.out.Settings, s)
	}
}

// want walks the strategy's fields in their order.
func (w *work) want() {
	t := &w.in.Strategy
	if t.MinFreeKbytesFactor != nil {
		w.minFree(*t.MinFreeKbytesFactor)
	}
	w.number(WatermarkScaleFactor, t.WatermarkScaleFactor, "watermarkScaleFactor", 1, 400)
	w.number(MemcgReapBackground, t.MemcgReapBackGround, "memcgReapBackGround", 0, 1)
	w.number(SchedGroupIdentity, t.SchedGroupIdentityEnabled, "schedGroupIdentityEnabled", 0, 1)
	w.number(SchedIdleSaverWmark, t.SchedIdleSaverWmark, "schedIdleSaverWmark", 0, 1<<62)
	w.number(PageCacheLimit, t.PageCacheLimitEnabled, "pageCacheLimitEnabled", 0, 1)
	features := make([]string, 0, len(t.SchedFeatures))
	for name := range t.SchedFeatures {
		features = append(features, name)
	}
	slices.Sort(features)
	for _, name := range features {
		text := name
		if !t.SchedFeatures[name] {
			text = "NO_" + name
		}
		w.set(SchedFeature, name, text, "schedFeatures", "schedFeatures")
	}
}

// number wants a plain number within its range; the validator has refused others, so that only a strategy from elsewhere
// is held here.
func (w *work) number(p Parameter, n *int64, field string, low, high int64) {
	if n == nil {
		return
	}
	value, reason := min(max(*n, low), high), field
	if value != *n {
		reason += " " + strconv.FormatInt(*n, 10) + " held within " + strconv.FormatInt(low, 10) + " and " + strconv.FormatInt(high, 10)
	}
	w.set(p, "", strconv.FormatInt(value, 10), field, reason)
}

// minFree computes vm.min_free_kbytes.
func (w *work) minFree(factor int64) {
	const field = "minFreeKbytesFactor"
	if w.in.Memory <= 0 || factor <= 0 {
		w.out.Problems = append(w.out.Problems, "systemStrategy."+field+": the node's memory is not known, or the factor is not positive")
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
	w.set(MinFreeKbytes, "", strconv.FormatInt(value, 10), field, reason)
}
