// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package mark

import (
	"maps"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// unifiedPrefix marks a cgroup v2 key in Applied.Base: its value is text as it stood in the spec.
const unifiedPrefix = "unified/"

// baseKnobs are the knobs with a place in workload.Resources.
var baseKnobs = [...]plan.Knob{
	plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.CPUSetCPUs, plan.CPUSetMems, plan.MemoryLimit, plan.OOMScoreAdj,
	plan.RDTClass, plan.CPUBurst, plan.CPUIdle, plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.MemoryOOMGroup,
}

// field is one scalar of workload.Resources by knob.
func field(r *workload.Resources, k plan.Knob) *unit.Opt {
	switch k {
	case plan.CPUShares:
		return &r.Shares
	case plan.CPUQuota:
		return &r.Quota
	case plan.CPUPeriod:
		return &r.Period
	case plan.MemoryLimit:
		return &r.MemoryLimit
	case plan.OOMScoreAdj:
		return &r.OOMScoreAdj
	}
	return nil
}

// textField is the same for texts.
func textField(r *workload.Resources, k plan.Knob) *string {
	switch k {
	case plan.CPUSetCPUs:
		return &r.CPUs
	case plan.CPUSetMems:
		return &r.Mems
	case plan.RDTClass:
		return &r.RDT
	}
	return nil
}

// baseOf renders what stands in r for a knob, and under which key of Applied.Base; ok is false when nothing does.
func baseOf(r *workload.Resources, k plan.Knob) (key, value string, ok bool) {
	prefix, name, value, ok := baseText(r, k)
	return prefix + name, value, ok
}

// baseText is baseOf with the key in two parts.
func baseText(r *workload.Resources, k plan.Knob) (prefix, name, value string, ok bool) {
	if o := field(r, k); o != nil {
		if !o.Set {
			return "", "", "", false
		}
		return "", k.String(), strconv.FormatInt(o.V, 10), true
	}
	if t := textField(r, k); t != nil {
		return "", k.String(), *t, *t != ""
	}
	if file := k.UnifiedKey(); file != "" {
		v, has := r.Unified[file]
		return unifiedPrefix, file, v, has
	}
	return "", "", "", false
}

// Rebase takes our values out of a spec's resources again. marks say what we set and what stood there before, newest
// first: the registry's, the ledger's, the annotation. For each knob the first mark whose value is the one in the spec
// counts. A spec value that no mark claims was set by the kubelet while we were away and is itself the base.
func Rebase(r *workload.Resources, marks ...*protocol.Applied) {
	owned := false
	for _, k := range baseKnobs {
		key, have, ok := baseOf(r, k)
		switch {
		case ok:
		case k == plan.CPUShares: // absent is what an idle group has, if a mark says so
			key, have = k.String(), "0"
		default:
			continue
		}
		for _, m := range marks {
			if m == nil || !claims(m, k, have) {
				continue
			}
			if k.UnifiedKey() != "" && !owned {
				r.Unified, owned = maps.Clone(r.Unified), true // the map belongs to the request
			}
			was, had := m.Base[key]
			put(r, k, was, had)
			break
		}
	}
}

// claims reports whether the mark says that we set k to the value that stands in the spec.
func claims(m *protocol.Applied, k plan.Knob, have string) bool {
	if _, idle := m.Set[plan.CPUIdle.String()]; idle && k == plan.CPUShares && have == "0" {
		return true // an idle group carries shares 0 whatever its plan says, see Idle
	}
	text, ok := m.Set[k.String()]
	if !ok {
		return false
	}
	value := text
	if i := strings.LastIndexByte(text, ' '); i >= 0 {
		value = text[:i]
	}
	if k.UnifiedKey() != "" && value == "-1" && k.Info().Max == unit.Unlimited {
		value = "max"
	}
	return value == have
}

// put sets one knob of r, or makes it absent.
func put(r *workload.Resources, k plan.Knob, text string, set bool) {
	if t := textField(r, k); t != nil {
		*t = text
		return
	}
	if o := field(r, k); o != nil {
		n, err := strconv.ParseInt(text, 10, 64)
		*o = unit.Opt{}
		if set && err == nil {
			*o = unit.Some(n)
		}
		return
	}
	file := k.UnifiedKey()
	if !set {
		delete(r.Unified, file)
		return
	}
	r.Unified[file] = text
}

// Overlay is base with every field that the kubelet's request r states. Zero in a request means "leave alone", so what
// it does not state stays.
func Overlay(base, r workload.Resources) workload.Resources {
	for _, k := range [...]plan.Knob{plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.MemoryLimit} {
		if o := field(&r, k); o.Set {
			*field(&base, k) = *o
		}
	}
	if r.CPUs != "" {
		base.CPUs = r.CPUs
	}
	if r.Mems != "" {
		base.Mems = r.Mems
	}
	if len(r.Unified) > 0 {
		merged := maps.Clone(base.Unified)
		if merged == nil {
			merged = make(map[string]string, len(r.Unified))
		}
		maps.Copy(merged, r.Unified)
		base.Unified = merged
	}
	return base
}
