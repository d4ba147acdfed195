// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import "github.com/koord-rt/koord-rt/model/unit"

// Change is one resource as the node has it and as it should be.
type Change struct{ Old, New unit.Opt }

// Rule says which differences are worth a write.
type Rule struct {
	// Threshold is the difference, as a part of the old value, that is written at once.
	Threshold unit.Fraction
	// After is the time since the last write from which less is written too.
	After unit.Micros
}

// noise is the part of the threshold up to which a difference is never worth a write: on a quiet cluster usage wobbles, and
// a write each time that [Rule.After] is over would be most of what the API server has to do.
const noise = 0.1

// Due reports whether the resources are to be written, all together. A resource that comes or goes is written at once.
//
// Example, threshold 10 % and After 300 s: 10000 → 11001 at once, 10000 → 10500 after 300 s, 10000 → 10050 never.
func (r Rule) Due(changes []Change, since unit.Micros) bool {
	for _, c := range changes {
		d := difference(c)
		if d > r.Threshold || d > r.Threshold*noise && since >= r.After {
			return true
		}
	}
	return false
}

// difference is a part of the old value; what comes, goes or grows from nothing differs by more than any threshold.
func difference(c Change) unit.Fraction {
	const whole = 2
	switch {
	case c.Old.Set != c.New.Set:
		return whole
	case c.Old.V == c.New.V:
		return 0
	case c.Old.V <= 0:
		return whole
	}
	d := float64(c.New.V) - float64(c.Old.V)
	return unit.Fraction(max(d, -d) / float64(c.Old.V))
}
