// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"fmt"

	"github.com/koord-rt/koord-rt/kernel/cgroup/format"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Mismatch is a setting that the kernel does not hold.
type Mismatch struct {
	Setting plan.Setting
	// Got is what stands there; Err is set instead when it could not be read.
	Got plan.Value
	Err error
}

// String is "cpu.shares of container default/web/app: want 512, got 1024".
func (m Mismatch) String() string {
	if m.Err != nil {
		return fmt.Sprintf("%s of %s: want %s, got error: %v", m.Setting.Knob, m.Setting.Target, m.Setting.Value, m.Err)
	}
	return fmt.Sprintf("%s of %s: want %s, got %q", m.Setting.Knob, m.Setting.Target, m.Setting.Value, m.Got)
}

// Verify reads every setting of a plan back (D9). Settings that are only observed, or that stand in the container's
// specification alone, are not looked at; a file that carries two settings of one cgroup is read once. On v2 a cpuset
// must also be in force: its ancestors may have fewer CPUs than it asks for. It takes no lock and does not allocate when
// everything holds and no setting belongs to processes. Nil means proven.
func (a *Applier) Verify(p plan.Plan) []Mismatch {
	s := a.open()
	defer s.close()
	return s.verify(p)
}

func (a *session) verify(p plan.Plan) []Mismatch {
	var out []Mismatch
	b := a.held.Get()
	defer b.Put()
	defer a.held.Many(false)
	var raw []byte
	var err error
	var last *plan.Setting // whose file raw is
	for i := range p {
		s := &p[i]
		if s.Observe || isSpecOnly(s.Knob) {
			continue
		}
		if unplaced(s.Target) {
			out = append(out, Mismatch{Setting: *s, Err: fmt.Errorf("%s of %s: %w", s.Knob, s.Target, ErrUnplaced)})
			continue
		}
		if !isCgroupKnob(s.Knob) {
			out = a.verifyOther(out, p, *s)
			continue
		}
		if first := i == 0 || p[i-1].Target.Cgroup != s.Target.Cgroup || !a.fs.SameDir(p[i-1].Knob, s.Knob); first {
			a.held.Many(a.neighbours(p, s) >= manyFiles)
		}
		if last == nil || err != nil || last.Target.Cgroup != s.Target.Cgroup || !a.fs.Shared(last.Knob, s.Knob) {
			raw, err = a.fs.ReadRaw(b, s.Target, s.Knob)
			last = s
		}
		if err != nil {
			out = append(out, Mismatch{Setting: *s, Err: a.explain(*s, err)})
			continue
		}
		same, wrong := a.fs.Holds(s, raw)
		if same && wrong == nil {
			if list, ok, err := a.fs.ReadEffective(b, s.Target, s.Knob); ok {
				last = nil // the buffer holds another file now
				raw, wrong = list, err
				same = err == nil && (s.Value.String() == "" || format.SameList(s.Value.String(), list))
			}
		}
		if wrong == nil && (same || a.idles(p, s)) {
			continue
		}
		m := Mismatch{Setting: *s, Err: wrong}
		if wrong == nil {
			m.Got, m.Err = a.fs.Parse(s.ID(), raw)
		}
		out = append(out, m)
	}
	return out
}

// manyFiles are so many that it pays to open their directory.
const manyFiles = 3

// neighbours counts the settings whose files lie in one directory with s's, s included.
func (a *session) neighbours(p plan.Plan, s *plan.Setting) int {
	n := 0
	for i := range p {
		if p[i].Target.Cgroup == s.Target.Cgroup && a.fs.SameDir(p[i].Knob, s.Knob) {
			n++
		}
	}
	return n
}

func (a *session) verifyOther(out []Mismatch, p plan.Plan, s plan.Setting) []Mismatch {
	c, err := a.change(p, s)
	switch {
	case err != nil:
		return append(out, Mismatch{Setting: s, Err: a.explain(s, err)})
	case !c.Same:
		return append(out, Mismatch{Setting: s, Got: c.Current})
	default:
		return out
	}
}
