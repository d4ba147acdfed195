// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Recorded is what we have put into a runtime's record of a container.
type Recorded struct {
	// Ours are what the record says, one of them, if nobody has changed it since: the last, or the one before where that was refused.
	Ours []plan.Setting
	// Back is what it has to say: what is restored in the kernel, or what somebody else has written there, which an update would otherwise
	// write over. An empty list is none that a runtime could be told: it leaves the one it has.
	Back plan.Setting
}

// Tellable reports whether a request can say what the record has to.
func (r *Recorded) Tellable() bool { return !r.Back.Knob.Info().Text || r.Back.Value.String() != "" }

// recordedOf is what the runtime's record may have of a knob.
func (a *Applier) recordedOf(h *history, current plan.Value, out *RestoreStep) *Recorded {
	if h.runtime == nil || !h.id.InRuntime() || out.Err != nil {
		return nil
	}
	s := plan.Setting{Target: h.id.Target, Knob: h.id.Knob, Key: h.id.Key}
	r := Recorded{Back: s}
	for _, rec := range []*journal.Record{h.runtime, h.before} {
		if rec == nil {
			continue
		}
		var err error
		if s.Value, err = valueOf(s.Knob, rec.Want); err == nil {
			r.Ours = append(r.Ours, s)
		}
	}
	var err error
	if r.Back.Value = current; out.Reason != notOurs {
		r.Back.Value, _, err = a.widest(*h)
	}
	if len(r.Ours) == 0 || err != nil {
		return nil
	}
	return &r
}

// Told records that the runtime's own record of a container brings none of these values of ours back any more. Until then the ledger knows
// them, so that a restore which could not tell the runtime can be done once more, whatever has become of the kernel's files.
func (a *Applier) Told(steps []*RestoreStep) error {
	records := make([]journal.Record, 0, len(steps))
	for _, s := range steps {
		records = append(records, a.recordTold(s.Recorded.Back))
	}
	return a.o.Journal.Append(records...)
}

func (a *Applier) recordTold(s plan.Setting) journal.Record {
	t := a.take(keyOf(s.Target))
	defer t.mu.Unlock()
	rec := a.bare().record(t, s, journal.ViaTold, 0)
	rec.Reason = "the runtime's record does not bring it back"
	return rec
}
