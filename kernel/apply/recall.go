// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"maps"
	"slices"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Standing is a value that an earlier life, or another process of ours, has written directly, and that stands in the kernel.
type Standing struct {
	ID    plan.ID
	Value plan.Value
	// By is the owner as records carry it, see plan.Setting.By.
	By string
	// Original is what a restore would return to. Known is false where no record tells it, and for knobs of processes.
	Original plan.Value
	Known    bool
}

// Recall takes up what the ledgers' records tell, in the order of Restore's. What of ours stands, or else was written last, is
// remembered of each knob, so that a value of somebody else's is known for one; and what stands in the same cgroup of the same
// boot is returned, but for links and schemata: who sets these looks at them by himself. It reads a file or two for each knob.
func (a *Applier) Recall(records []journal.Record) []Standing {
	histories, originals := a.histories(records)
	out := make([]Standing, 0, len(histories))
	for i := range histories {
		h := &histories[i]
		a.recallBeside(h, originals)
		r, last, stands := a.lastOf(h)
		if r == nil {
			continue
		}
		s := plan.Setting{Target: h.id.Target, Knob: h.id.Knob, Key: h.id.Key, Value: last}
		if !s.Knob.OfProcesses() {
			t := a.take(keyOf(s.Target))
			a.recallOwn(t, s, h, originals)
			t.mu.Unlock()
		}
		if !stands || isWhole(s.Knob) {
			continue
		}
		st := Standing{ID: h.id, Value: last, By: r.Owner}
		st.Original, st.Known = a.originalOf(h, originals)
		out = append(out, st)
	}
	return out
}

// isWhole reports knobs whose values are lines of text that are no cgroup file's.
func isWhole(k plan.Knob) bool { return isLinkKnob(k) || k == plan.RDTSchemata }

// lastOf is what of ours stands, else what we have written last; nil without either.
func (a *Applier) lastOf(h *history) (last *journal.Record, value plan.Value, stands bool) {
	for _, r := range h.mayStand() {
		v, err := a.valueIn(h, r)
		if err != nil {
			continue
		}
		if a.stands(plan.Setting{Target: h.id.Target, Knob: h.id.Knob, Key: h.id.Key, Value: v}) {
			return r, v, true
		}
		if last == nil {
			last, value = r, v
		}
	}
	return last, value, false
}

// valueIn is the value that a record wrote.
func (a *Applier) valueIn(h *history, r *journal.Record) (plan.Value, error) {
	switch k := h.id.Knob; {
	case k.OfProcesses():
		return valueOf(k, r.Want)
	case isSpecOnly(k):
		return plan.Value{}, ErrUnsupported // no file of this machine has it
	}
	return a.textOf(h, writtenTo(r, h.file(a)))
}

// stands reports whether the kernel has a value; of a knob of processes, whether one of them has.
func (a *Applier) stands(s plan.Setting) bool {
	if isCgroupKnob(s.Knob) {
		now, err := a.o.FS.Read(s.ID())
		return err == nil && a.o.FS.Same(s, now)
	}
	if s.Knob == plan.RDTMonGroup || a.hook(s.Knob) != nil {
		return false // a monitoring group restricts nothing
	}
	switch {
	case isLinkKnob(s.Knob):
		now, err := a.o.Links.Shape(s.Key)
		return err == nil && now == s.Value.String()
	case s.Knob == plan.RDTSchemata:
		content, err := a.o.Groups.Schemata(s.Target.Cgroup)
		line, _ := schemataLine(content, s.Key)
		return err == nil && sameDomains(s.Key, s.Value.String(), line)
	}
	pids, err := a.bare().pids(s.Target)
	return err == nil && slices.ContainsFunc(pids, func(pid int) bool {
		now, err := a.taskValue(nil, s, pid)
		return err == nil && now == s.Value
	})
}

// originalOf is what planOriginal returns to. A container's original may be what its specification has of ours.
func (a *Applier) originalOf(h *history, originals map[string]string) (plan.Value, bool) {
	if !isCgroupKnob(h.id.Knob) || h.id.Target.Level == plan.LevelContainer {
		return plan.Value{}, false
	}
	text, ok := h.original(originals, h.file(a))
	if !ok {
		return plan.Value{}, false
	}
	v, err := a.o.FS.Parse(h.id, []byte(text))
	return v, err == nil
}

// Inherit takes over what another Applier of this process has remembered to have written, and what it has yet to put back after systemd.
// What it has told the journal of values that stood anyway is told once more. Files that the other one keeps open come along, and it keeps
// none from then on. Call it before the first Apply.
func (a *Applier) Inherit(from *Applier) {
	from.keptMost.Store(0)
	from.readyMost.Store(0)
	from.mu.Lock()
	keys := slices.Collect(maps.Keys(from.targets))
	from.mu.Unlock()
	for _, key := range keys {
		old := from.take(key)
		file, own, behind, ready := from.unkeep(old), slices.Clone(old.own), old.beside, from.unready(old)
		for i := range own {
			own[i].older = slices.Clone(own[i].older)
		}
		old.mu.Unlock()
		ready.end()        // a start looks its files up then
		behind.telling = 0 // who calls systemd now counts there
		if len(own) == 0 && behind == (beside{}) && file.fd1 == 0 {
			continue
		}
		t := a.take(key)
		t.own, t.beside = own, behind
		if file.fd1 > 0 {
			a.keep(t, file)
		}
		t.mu.Unlock()
	}
}
