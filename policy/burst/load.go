// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package burst

import (
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Load is the state of the share pool. It has no memory: each step computes it anew from averages.
type Load uint8

// Loads. Unknown is entered when a figure is missing, and treated as Cooling: nobody is raised, nobody pushed down.
// Idle lets containers rise. Cooling, the last tenth below the threshold, holds what is raised. Overload pushes down.
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

// load computes the state of the pool with its figures.
func load(p *Pool, threshold *int64) (Load, string) {
	total := p.CPUs - p.Requests
	switch {
	case threshold == nil:
		return Unknown, "no sharePoolThresholdPercent"
	case !p.Node.OK || !p.Exclusive.OK || !p.BE.OK:
		return Unknown, "the use of the share pool was not measured"
	case total <= 0:
		return Unknown, "LSE and LSR pods request every CPU"
	}
	used := max(p.Node.V-p.Exclusive.V-p.BE.V, 0)
	limit := unit.Percent(*threshold)
	what := "share pool uses " + figure.Cores(used) + " of " + figure.CPUs(total) + " (" + figure.Percent(unit.Part(used, total)) + ")"
	switch mark := limit.Milli(total); {
	case used >= mark:
		return Overload, what + ", overload from " + figure.Percent(limit.Fraction()) + " on"
	case float64(used) >= coolingPart*float64(mark):
		return Cooling, what + ", close to " + figure.Percent(limit.Fraction())
	}
	return Idle, what + ", below " + figure.Percent(limit.Fraction())
}
