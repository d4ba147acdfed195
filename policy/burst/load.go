// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package burst

import (
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Load is the state of the share pool. It has no memory: each step computes it anew from the average of some seconds and from the last one. Both
// must be high for an overload, or a step down would not be seen before the next is taken; both must be low for idle, or a step up would not be.
type Load uint8

// Loads. Unknown is entered when a figure is missing, and treated as Cooling: nobody is raised, nobody pushed down.
// Idle lets containers rise. Cooling holds what is raised. Overload pushes down.
const (
	Unknown Load = iota
	Idle
	Cooling
	Overload
)

// String names the load.
func (l Load) String() string {
	return [...]string{"unknown", "idle", "cooling", "overload"}[min(l, Overload)]
}

// load computes the state of the pool with its figures, and what it can still give before it cools.
func load(p *Pool, threshold *int64) (state Load, room unit.MilliCPU, why string) {
	total := p.CPUs - p.Requests
	switch {
	case threshold == nil:
		return Unknown, 0, "no sharePoolThresholdPercent"
	case !p.Node.OK || !p.Exclusive.OK || !p.BE.OK:
		return Unknown, 0, "the use of the share pool was not measured"
	case total <= 0:
		return Unknown, 0, "LSE and LSR pods request every CPU"
	}
	used := max(p.Node.V-p.Exclusive.V-p.BE.V, 0)
	limit := unit.Percent(*threshold)
	what := "share pool uses " + figure.Cores(used) + " of " + figure.CPUs(total) + " (" + figure.Percent(unit.Part(used, total)) + ")"
	now := used
	if p.Now.OK {
		now = max(p.Now.V, 0)
	}
	if now != used {
		what += ", " + figure.Cores(now) + " now"
	}
	mark := limit.Milli(total)
	cooling := unit.MilliCPU(coolingPart * float64(mark))
	switch room = cooling - max(used, now); {
	case min(used, now) >= mark:
		return Overload, 0, what + ", overload from " + figure.Percent(limit.Fraction()) + " on"
	case room <= total/leastRoom:
		return Cooling, 0, what + ", close to " + figure.Percent(limit.Fraction())
	}
	return Idle, room, what + ", below " + figure.Percent(limit.Fraction())
}
