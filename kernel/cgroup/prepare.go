// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroup

import (
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/cgroup/format"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Direction is how a change moves a knob that is bounded by the levels above or below it.
type Direction uint8

// Directions. Growing values are written from the outermost level inwards, shrinking ones the other way round.
const (
	// Level: equal, or a knob without an order.
	Level Direction = iota
	Grow
	Shrink
	// Move: a CPU or node list that gains and loses members.
	Move
)

// Change is one setting against the kernel's present state.
type Change struct {
	// Current is the present value in the knob's unit.
	Current plan.Value
	// Same: nothing has to be written.
	Same      bool
	Direction Direction
	// Writes in order; empty when Same. Original is the present content of each file.
	Writes   []Write
	Original []string
}

// Prepare reads what stands in the kernel and renders what has to be written. The v1 memory limit brings
// memory.memsw.limit_in_bytes along, before itself when it grows and after it when it shrinks, where that file exists and
// would refuse the limit or was equal to the old one.
func (f FS) Prepare(s plan.Setting) (Change, error) {
	b := f.files.Get()
	defer b.Put()
	file, err := f.Path(s.Target, s.Knob)
	if err != nil {
		return Change{}, err
	}
	raw, err := b.ReadToWrite(file)
	if err != nil {
		return Change{}, err
	}
	current, err := f.Parse(s.ID(), raw)
	if err != nil {
		return Change{}, err
	}
	c := Change{Current: current}
	if c.Same = f.Same(s, current); c.Same {
		return c, nil
	}
	c.Direction = Compare(s, current)
	original := string(raw)
	data, err := f.render(s, []byte(original))
	if err != nil {
		return Change{}, err
	}
	c.Writes, c.Original = []Write{{File: file, Data: data}}, []string{original}
	f.companion(&c, s, b)
	return c, nil
}

// companion adds the write of the file that has to move with the knob's own.
func (f FS) companion(c *Change, s plan.Setting, b *root.Buffer) {
	name := f.h.Companion(s.Knob)
	if name == "" {
		return
	}
	dir, err := f.Dir(s.Target, s.Knob)
	if err != nil {
		return
	}
	raw, err := b.Read(dir, "/", name)
	if err != nil {
		return // no swap accounting in this kernel
	}
	have, err := f.Parse(s.ID(), raw)
	if err != nil {
		return
	}
	w := Write{File: dir + "/" + name, Data: c.Writes[0].Data}
	switch {
	case c.Direction == Grow && rank(have.Int()) < rank(s.Value.Int()):
		c.Writes = []Write{w, c.Writes[0]}
		c.Original = []string{string(raw), c.Original[0]}
	case c.Direction == Shrink && have == c.Current:
		c.Writes = append(c.Writes, w)
		c.Original = append(c.Original, string(raw))
	}
}

// rank puts "unlimited" above every number.
func rank(n int64) uint64 {
	if n == unit.Unlimited {
		return 1 << 63
	}
	return uint64(max(n, 0))
}

// Compare is the direction from the present value to the setting's.
func Compare(s plan.Setting, current plan.Value) Direction {
	switch s.Knob {
	case plan.CPUSetCPUs, plan.CPUSetMems:
		return listDirection(s.Value.String(), current.String())
	case plan.CPUQuota, plan.CPUBurst, plan.MemoryLimit, plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh:
		if rank(s.Value.Int()) > rank(current.Int()) {
			return Grow
		}
		return Shrink
	case plan.CPUIdle:
		if s.Value.Int() > current.Int() {
			return Grow
		}
		return Shrink
	case plan.CPUPeriod: // the share of a CPU grows as the period shrinks
		if s.Value.Int() < current.Int() {
			return Grow
		}
		return Shrink
	default:
		return Level
	}
}

func listDirection(want, current string) Direction {
	w, err1 := topo.ParseCPUSet(want)
	c, err2 := topo.ParseCPUSet(current)
	switch {
	case err1 != nil || err2 != nil:
		return Level
	case c.SubsetOf(w):
		return Grow
	case w.SubsetOf(c):
		return Shrink
	default:
		return Move
	}
}

// Fit holds a nested value to what the kernel accepts below the parent's present one: the quota per period of the
// nearest limited ancestor, the intersection of a list with the parent's. note says what was cut, "" when nothing. It
// is an error when nothing is left of a list. On v2 every value fits.
func (f FS) Fit(s plan.Setting) (fitted plan.Setting, note string, err error) {
	if !f.h.Nested(s.Knob) || s.Value == plan.Int(unit.Unlimited) {
		return s, "", nil
	}
	if s.Knob == plan.CPUQuota {
		return f.fitQuota(s)
	}
	parent := s.Target
	parent.Cgroup = parentOf(s.Target.Cgroup)
	if parent.Cgroup == "" {
		return s, "", nil
	}
	have, err := f.Read(plan.ID{Target: parent, Knob: s.Knob})
	if err != nil {
		return s, "", err
	}
	outer, err := topo.ParseCPUSet(have.String())
	if err != nil {
		return s, "", fmt.Errorf("read %s of %s: %w", s.Knob, parent.Cgroup, err)
	}
	want, err := topo.ParseCPUSet(s.Value.String())
	if err != nil {
		return s, "", fmt.Errorf("%s of %s: %w", s.Knob, s.Target, err)
	}
	if want.SubsetOf(outer) {
		return s, "", nil
	}
	rest := want.Intersect(outer)
	if rest.Empty() {
		return s, "", fmt.Errorf("%s %s: %w: nothing of it is in %q of %s", s.Knob, want, ErrRange, outer, parent.Cgroup)
	}
	s.Value = plan.Text(rest.String())
	return s, fmt.Sprintf("cut from %s to %s: %s has %s only", want, rest, parent.Cgroup, outer), nil
}

func (f FS) fitQuota(s plan.Setting) (plan.Setting, string, error) {
	period, err := f.Read(plan.ID{Target: s.Target, Knob: plan.CPUPeriod})
	if err != nil {
		return s, "", err
	}
	for dir := parentOf(s.Target.Cgroup); dir != ""; dir = parentOf(dir) {
		t := plan.Target{Cgroup: dir}
		quota, err := f.Read(plan.ID{Target: t, Knob: plan.CPUQuota})
		if err != nil {
			return s, "", err
		}
		if quota.Int() == unit.Unlimited {
			continue
		}
		outer, err := f.Read(plan.ID{Target: t, Knob: plan.CPUPeriod})
		if err != nil || outer.Int() <= 0 {
			return s, "", fmt.Errorf("read cpu.period of %s: %d: %w", dir, outer.Int(), err)
		}
		most := unit.Micros(quota.Int()) * unit.Micros(period.Int()) / unit.Micros(outer.Int())
		if unit.Micros(s.Value.Int()) <= most {
			return s, "", nil
		}
		note := fmt.Sprintf("cut from %s to %d: %s has %s of %s µs", s.Value, most, dir, quota, outer)
		s.Value = plan.Int(max(most, unit.MinQuota))
		return s, note, nil
	}
	return s, "", nil
}

// parentOf is the parent's path, "" for a cgroup directly below the root, whose parent has no limits.
func parentOf(cgroup string) string {
	i := strings.LastIndexByte(strings.TrimRight(cgroup, "/"), '/')
	if i <= 0 {
		return ""
	}
	return cgroup[:i]
}

// HasDevice reports whether a keyed file's content has a line of its own for the device.
func HasDevice(content, device string) bool {
	_, ok := format.Line([]byte(content), device)
	return ok
}
