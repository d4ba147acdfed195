// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package llc

import (
	"maps"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// within is what a pod's annotation gets. A BE pod's own group has no more cache and bandwidth than its class, where the class
// has a group, unless the node says so: an annotation must not be the way out of the part that BE is kept to (D13). What the
// annotation does not name is the class's then; a range beside the class's becomes the class's.
//
// Example: class BE 0-30 %, 25 % of bandwidth; asked 20-60 %: 20-30 %, 25 %.
func within(v *node.View, p *workload.Pod) (ask *protocol.Resctrl, held bool) {
	ask = p.Ask.Resctrl
	q := v.Strategy.ClassFor(protocol.QoSBE.String()).ResctrlQOS
	if p.Class() != protocol.QoSBE || !draft.On(q.Enable) || v.Limits.BeyondClass {
		return ask, false
	}
	class, out := classAsk(q), *ask
	rdt := &v.Kernel.RDT
	if most := class.LLC; most != nil && rdt.L3 {
		own := protocol.Range{Start: 0, End: 100} // the whole cache is what a group has that nobody has named
		if ask.LLC != nil {
			own = *ask.LLC
		}
		if fits := overlap(own, *most); fits != own {
			out.LLC, held = &fits, true
		}
		out.LLCPerCache = maps.Clone(ask.LLCPerCache)
		for id, r := range ask.LLCPerCache {
			out.LLCPerCache[id] = overlap(r, *most)
			held = held || out.LLCPerCache[id] != r
		}
	}
	if most := class.MBPercent; most != nil && rdt.MB {
		if ask.MBPercent == nil && *most < 100 || ask.MBPercent != nil && *ask.MBPercent > *most {
			out.MBPercent, held = most, true
		}
		out.MBPerCache = maps.Clone(ask.MBPerCache)
		for id, n := range ask.MBPerCache {
			out.MBPerCache[id] = min(n, *most)
			held = held || n > *most
		}
	}
	return &out, held
}

// overlap is the part of a range that lies in another, or all of the other where none does.
func overlap(r, in protocol.Range) protocol.Range {
	r.Start, r.End = max(r.Start, in.Start), min(r.End, in.End)
	if r.Start >= r.End {
		return in
	}
	return r
}
