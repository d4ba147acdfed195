// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
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

// Recall takes up what the ledgers' records tell, in the order of Restore's. What was written last to each knob is remembered, so
// that a value of somebody else's is known for one; and what of it stands in the same cgroup of the same boot is returned. It
// reads a file for each knob.
func (a *Applier) Recall(records []journal.Record) []Standing {
	histories, originals := a.histories(records)
	out := make([]Standing, 0, len(histories))
	for i := range histories {
		h := &histories[i]
		value, ok := a.lastOf(h)
		if !ok {
			continue
		}
		s := plan.Setting{Target: h.id.Target, Knob: h.id.Knob, Key: h.id.Key, Value: value}
		if isCgroupKnob(s.Knob) {
			t := a.take(keyOf(s.Target))
			t.wrote(s)
			t.mu.Unlock()
		}
		if !a.stands(s) {
			continue
		}
		st := Standing{ID: h.id, Value: value, By: h.ours.Owner}
		st.Original, st.Known = a.originalOf(h, originals)
		out = append(out, st)
	}
	return out
}

// lastOf is what we have written last.
func (a *Applier) lastOf(h *history) (plan.Value, bool) {
	if h.ours == nil {
		return plan.Value{}, false
	}
	if !isCgroupKnob(h.id.Knob) {
		v, err := valueOf(h.id.Knob, h.ours.Want)
		return v, err == nil && isTaskKnob(h.id.Knob)
	}
	v, err := a.o.FS.Parse(h.id, []byte(writtenTo(h.ours, h.file(a))))
	return v, err == nil
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

// Inherit takes over what another Applier of this process has remembered to have written. Call it before the first Apply.
func (a *Applier) Inherit(from *Applier) {
	from.mu.Lock()
	keys := make([]string, 0, len(from.targets))
	for key := range from.targets {
		keys = append(keys, key)
	}
	from.mu.Unlock()
	for _, key := range keys {
		old := from.take(key)
		kept := slices.Clone(old.own)
		old.mu.Unlock()
		if len(kept) == 0 {
			continue
		}
		t := a.take(key)
		t.own = kept
		t.mu.Unlock()
	}
}
