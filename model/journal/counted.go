// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package journal

import (
	"maps"

	"github.com/koord-rt/koord-rt/model/plan"
)

// Counted are the resctrl monitoring groups that are ours: each has the name of its pod's UID, and lies in the root group or in one that
// our containers were in. The zero value has none.
type Counted struct{ names, groups map[string]bool }

// Note takes in what a record tells of processes that were put into a monitoring group, or into a control group. One that has ended may
// have left its group, so nothing takes that back.
func (c *Counted) Note(r *Record) {
	switch {
	case r.Via != ViaDirect && r.Via != ViaRuntime:
	case r.Knob == plan.RDTClass.String():
		c.groups = with(c.groups, r.Want)
	case r.Knob == plan.RDTMonGroup.String() && r.Want == r.Target.Pod && r.Want != "":
		c.names = with(c.names, r.Want)
	}
}

// Add is Note of what this life has done.
func (c *Counted) Add(group, pod string) {
	c.groups, c.names = with(c.groups, group), with(c.names, pod)
}

// Join takes in what others tell.
func (c *Counted) Join(o *Counted) {
	for name := range o.names {
		c.names = with(c.names, name)
	}
	for name := range o.groups {
		c.groups = with(c.groups, name)
	}
}

// Keep forgets the groups whose names are not among these.
func (c *Counted) Keep(names map[string]bool) {
	maps.DeleteFunc(c.names, func(name string, _ bool) bool { return !names[name] })
}

// Empty reports that none is known.
func (c *Counted) Empty() bool { return len(c.names) == 0 }

// Has reports whether a monitoring group of this name below a control group, "" for the root group, is ours.
func (c *Counted) Has(group, name string) bool {
	return c.names[name] && (group == "" || c.groups[group])
}

func with(set map[string]bool, name string) map[string]bool {
	if set == nil {
		set = map[string]bool{}
	}
	set[name] = true
	return set
}
