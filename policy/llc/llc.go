// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package llc decides last-level cache and memory bandwidth: which resctrl group a pod's tasks belong to, and what
// stands in the groups' schemata.
//
// Inputs are a node.View (with the resctrl capabilities that the probe read) and a workload.Pod, outputs plans at
// plan.LevelGroup. It imports model, api, policy/draft and the standard library only.
package llc

import (
	"math/bits"
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// podGroupPrefix is upstream's, so that its cleanup and its tools know the groups.
const podGroupPrefix = "koordlet-"

// groupNames are the class groups, in the order in which they are planned.
var groupNames = [...]string{"LSR", "LS", "BE"}

// Groups returns the schemata of the class groups LSR, LS and BE whose resctrlQOS is enabled: one setting per resource
// (key L3, L3CODE, L3DATA or MB), whose value is the part behind the colon: "0=ff;1=ff". The groups are made beforehand,
// because a runtime refuses a container whose group is missing. Ceded and observed as any setting.
func Groups(v *node.View) plan.Plan {
	var out plan.Plan
	if !v.Kernel.RDT.Mounted || v.Modes[protocol.FeatureLLC] == node.Off || v.Ceded.Has(plan.RDTSchemata) {
		return nil
	}
	for _, name := range groupNames {
		q := v.Strategy.ClassFor(name).ResctrlQOS
		if !draft.On(q.Enable) {
			continue
		}
		ask := classAsk(q)
		g := group{v: v, target: plan.Target{Level: plan.LevelGroup, Cgroup: name}, why: "class " + name}
		g.plan(&ask)
		out = append(out, g.out...)
	}
	return out
}

// classAsk is a class strategy in the form of the annotation.
func classAsk(q *strategy.ResctrlQOS) protocol.Resctrl {
	ask := protocol.Resctrl{MBPercent: q.MBAPercent}
	if q.CATRangeStartPercent != nil && q.CATRangeEndPercent != nil {
		ask.LLC = &protocol.Range{Start: *q.CATRangeStartPercent, End: *q.CATRangeEndPercent}
	}
	return ask
}

// GroupOf returns the name of the group for the pod's containers: the pod's own when it asks for one that this node can give and may
// have it, else its class' (LSE shares LSR's; derived for pods without label) when enabled. SYSTEM pods have none.
func GroupOf(v *node.View, p *workload.Pod) (name, why string, ok bool) {
	if v.Limits.PodResctrl && yields(&v.Kernel.RDT, p.Ask.Resctrl) {
		return podGroupPrefix + p.UID, "annotation resctrl", true
	}
	class := p.Class()
	switch class {
	case protocol.QoSLSE:
		class = protocol.QoSLSR
	case protocol.QoSNone, protocol.QoSSystem:
		return "", "", false
	}
	if !draft.On(v.Strategy.ClassFor(class.String()).ResctrlQOS.Enable) {
		return "", "", false
	}
	return class.String(), "class strategy resctrlQOS", true
}

// OwnGroup names the group that the pod asks for, where it may have one and the machine can divide something. It is told also where
// GroupOf says its class's: who demands the feature starts in no other.
func OwnGroup(v *node.View, p *workload.Pod) (name string, ok bool) {
	active, _ := draft.Features(v, p)
	rdt := &v.Kernel.RDT
	ok = p.Ask.Resctrl != nil && v.Limits.PodResctrl && active.Has(protocol.FeatureLLC) && !v.Ceded.Has(plan.RDTClass) &&
		rdt.Mounted && (rdt.L3 || rdt.MB)
	return podGroupPrefix + p.UID, ok
}

// yields reports whether an annotation leads to a line here. Without one there would be a group without a bound.
func yields(rdt *node.RDT, ask *protocol.Resctrl) bool {
	switch {
	case ask == nil || !rdt.Mounted:
		return false
	case rdt.L3 && (ask.LLC != nil || contains(ask.LLCPerCache, rdt.L3IDs)):
		return true
	}
	return rdt.MB && !unscaled(rdt) && (ask.MBPercent != nil || contains(ask.MBPerCache, rdt.MBIDs))
}

// unscaled reports a bandwidth in MB/s whose largest value is not known.
func unscaled(rdt *node.RDT) bool { return rdt.MBUnit == node.MBMBps && rdt.MBMax <= 0 }

// PodGroup returns the pod's own group, "koordlet-" and the pod's UID as upstream names it, with its schemata. Name is
// empty when the pod asks for none, may have none, resctrl is missing, or nothing of what it asks for is to be had here; a problem then
// says why.
func PodGroup(v *node.View, p *workload.Pod) (name string, pl plan.Plan, problems []protocol.Problem) {
	_, planned := draft.Features(v, p)
	if p.Ask.Resctrl == nil || !planned.Has(protocol.FeatureLLC) || v.Ceded.Has(plan.RDTClass) {
		return "", nil, nil
	}
	rdt := &v.Kernel.RDT
	switch {
	case !v.Limits.PodResctrl:
		return "", nil, problem(nil, "groups per pod are switched off in the node's limits")
	case !rdt.Mounted || !rdt.L3 && !rdt.MB:
		return "", nil, problem(nil, "this node has no cache or bandwidth allocation: "+rdt.Why)
	}
	name = podGroupPrefix + p.UID
	g := group{
		v: v, target: plan.Target{Level: plan.LevelGroup, Cgroup: name, Pod: p.UID, Name: p.FullName()},
		why: "annotation resctrl", asked: true,
	}
	if !v.Ceded.Has(plan.RDTSchemata) {
		ask, held := within(v, p)
		if held {
			g.why += ", held within class BE's (limits.beyondClass)"
		}
		g.plan(ask)
	}
	if !yields(rdt, p.Ask.Resctrl) {
		return "", nil, g.problems // what its class has alone is its class's group
	}
	return name, g.out, g.problems
}

func problem(ps []protocol.Problem, reason string) []protocol.Problem {
	return append(ps, protocol.Problem{Key: protocol.AnnotationResctrl, Reason: reason})
}

// group is the work on one group.
type group struct {
	v      *node.View
	target plan.Target
	why    string
	// asked: by a pod's annotation, so the node's caps hold.
	asked    bool
	out      plan.Plan
	problems []protocol.Problem
}

func (g *group) plan(ask *protocol.Resctrl) {
	rdt := &g.v.Kernel.RDT
	if ask.LLC != nil || len(ask.LLCPerCache) > 0 {
		g.cache(ask, rdt)
	}
	if ask.MBPercent != nil || len(ask.MBPerCache) > 0 {
		g.bandwidth(ask, rdt)
	}
}

func (g *group) set(key, value, why string) {
	g.out = append(g.out, plan.Setting{
		Target: g.target, Knob: plan.RDTSchemata, Key: key, Value: plan.Text(value), Owner: protocol.FeatureLLC,
		Reason: why, Observe: g.v.Modes[protocol.FeatureLLC] == node.Observe,
	})
}

// cache plans the L3 lines: the general range for each cache, its own where the annotation names the cache, the whole
// cache where neither does.
func (g *group) cache(ask *protocol.Resctrl, rdt *node.RDT) {
	if !rdt.L3 {
		if g.asked {
			g.problems = problem(g.problems, "this node has no cache allocation")
		}
		return
	}
	var line []byte
	for _, id := range rdt.L3IDs {
		r := protocol.Range{Start: 0, End: 100}
		if ask.LLC != nil {
			r = *ask.LLC
		}
		if own, ok := ask.LLCPerCache[id]; ok {
			r = own
		}
		line = appendKey(line, id)
		line = strconv.AppendUint(line, Mask(rdt.L3CBM, rdt.L3MinBits, r.Start, r.End), 16)
	}
	if ask.LLC != nil || contains(ask.LLCPerCache, rdt.L3IDs) {
		keys := []string{"L3"}
		if rdt.L3CDP {
			keys = []string{"L3CODE", "L3DATA"}
		}
		for _, k := range keys {
			g.set(k, string(line), g.why)
		}
	}
	g.problems = unknown(g.problems, ask.LLCPerCache, rdt.L3IDs)
}

// bandwidth plans the MB line in the same way; caches that nobody names keep the full bandwidth.
func (g *group) bandwidth(ask *protocol.Resctrl, rdt *node.RDT) {
	if !rdt.MB {
		if g.asked {
			g.problems = problem(g.problems, "this node has no memory bandwidth allocation")
		}
		return
	}
	if unscaled(rdt) {
		if g.asked {
			g.problems = problem(g.problems, "the bandwidth in MB/s is not known, a percentage has no meaning")
		}
		return
	}
	var line []byte
	why := g.why
	for _, id := range rdt.MBIDs {
		percent := int64(100)
		if ask.MBPercent != nil {
			percent = *ask.MBPercent
		}
		if own, ok := ask.MBPerCache[id]; ok {
			percent = own
		}
		if most := int64(g.v.Limits.MBAPercentMax); g.asked && percent > most {
			percent, why = most, g.why+", capped by the node's mbaPercentMax"
		}
		line = appendKey(line, id)
		line = strconv.AppendInt(line, Bandwidth(rdt, percent), 10)
	}
	if ask.MBPercent != nil || contains(ask.MBPerCache, rdt.MBIDs) {
		g.set("MB", string(line), why)
	}
	g.problems = unknown(g.problems, ask.MBPerCache, rdt.MBIDs)
}

func appendKey(line []byte, id int) []byte {
	if len(line) > 0 {
		line = append(line, ';')
	}
	return append(strconv.AppendInt(line, int64(id), 10), '=')
}

// Mask is the run of cache ways of a range in percent: n ways, start = ⌈n·s/100⌉, end = ⌈n·e/100⌉, bits start..end−1,
// at least minBits (downwards from the end, then upwards), within the cache's full mask. Bad percentages are held within
// 0..100.
//
// Example: 20 ways, 0–30 % gives 0x3f.
func Mask(full uint64, minBits int, startPercent, endPercent int64) uint64 {
	n := int64(bits.Len64(full))
	start := (n*held(startPercent) + 99) / 100
	end := (n*held(endPercent) + 99) / 100
	least := max(int64(minBits), 1)
	if end-start < least {
		start = max(end-least, 0)
		end = min(start+least, n)
	}
	return (ones(end) &^ ones(start)) & full
}

func ones(n int64) uint64 {
	if n >= 64 {
		return ^uint64(0)
	}
	return 1<<n - 1
}

func held(percent int64) int64 { return min(max(percent, 0), 100) }

// Bandwidth is the MB value of a percentage.
//
//	percent (Intel): rounded up to the granularity, at least the minimum, at most 100
//	absolute (AMD):  160 × percent / 100 in 1/8 GB/s, 100 % is 2048, unlimited (upstream's table)
//	MB/s:            percent of the largest value
//
// Example: 25 % with granularity 10 gives 30; AMD 50 % gives 80.
func Bandwidth(rdt *node.RDT, percent int64) int64 {
	percent = max(held(percent), 1)
	switch rdt.MBUnit {
	case node.MBAbsolute:
		if percent == 100 {
			return 2048
		}
		return max(160*percent/100, rdt.MBMin, 1)
	case node.MBMBps:
		return max(rdt.MBMax/100*percent, rdt.MBMin, 1)
	default:
		gran := max(rdt.MBGran, 1)
		return min(max((percent+gran-1)/gran*gran, rdt.MBMin), 100)
	}
}
