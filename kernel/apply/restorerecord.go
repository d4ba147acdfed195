// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Recorded is what we have put into a runtime's record of a container.
type Recorded struct {
	// Ours is what the record says if nobody has changed it since. Back is what it has to say: what is restored in the kernel, or what somebody
	// else has written there, which an update would otherwise write over.
	Ours, Back plan.Setting
	// base is what the kubelet had asked for, as the ledger has it.
	base string
}

// recordedOf is what the runtime's record may have of a knob. An empty list is none that a runtime could be told: it leaves the one it has.
func (a *Applier) recordedOf(h *history, current plan.Value, out *RestoreStep) *Recorded {
	if h.runtime == nil || h.id.Target.Level != plan.LevelContainer || out.Err != nil {
		return nil
	}
	s := plan.Setting{Target: h.id.Target, Knob: h.id.Knob, Key: h.id.Key}
	r := Recorded{Ours: s, Back: s, base: h.runtime.Base}
	var err1, err2 error
	r.Ours.Value, err1 = valueOf(s.Knob, h.runtime.Want)
	if r.Back.Value = current; out.Reason != notOurs {
		r.Back.Value, _, err2 = a.widest(*h)
	}
	if err1 != nil || err2 != nil || s.Knob.Info().Text && r.Back.Value.String() == "" {
		return nil
	}
	return &r
}

// Remains records that the runtime's own record of a container says ours still, when the restore of the kernel's value has ended what
// the ledger knew of it: a restore that could not tell the runtime can be done once more.
func (a *Applier) Remains(steps []*RestoreStep) error {
	return a.note(steps, func(r *Recorded) journal.Record {
		rec := a.recordAgain(r.Ours, journal.ViaRuntime)
		rec.Base, rec.Reason = r.base, "the runtime's record after a restore"
		return rec
	})
}

// Told records that it does no more.
func (a *Applier) Told(steps []*RestoreStep) error {
	return a.note(steps, func(r *Recorded) journal.Record {
		rec := a.recordAgain(r.Back, journal.ViaRestore)
		rec.Reason = "told to the runtime"
		return rec
	})
}

// note appends a record for each value that was written: what was not, the ledger knows as before.
func (a *Applier) note(steps []*RestoreStep, of func(*Recorded) journal.Record) error {
	var records []journal.Record
	for _, s := range steps {
		if s.Action == ActWrite && s.Err == nil {
			records = append(records, of(s.Recorded))
		}
	}
	if len(records) == 0 {
		return nil
	}
	return a.o.Journal.Append(records...)
}

// recordAgain is a record of a container's knob.
func (a *Applier) recordAgain(s plan.Setting, via journal.Via) journal.Record {
	t := a.take(keyOf(s.Target))
	defer t.mu.Unlock()
	return a.bare().record(t, s, via, 0)
}
