// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Entry is what is known of one (target, knob, key) that still exists. Pointers are nil where there is no such record.
type Entry struct {
	Target plan.Target
	Knob   string
	Key    string
	// Original is our oldest write since the last restore, or the newest over a value of somebody else, with the content
	// before it; Runtime the newest wish that the runtime took, whose Base is the kubelet's own.
	Original, Runtime *journal.Record
	// Done is the newest wish that went well, Value the newest at all: they differ after an error.
	Done, Value *journal.Record
	// Restore, Proof, Problem and Drift are the newest of their kind.
	Restore, Proof, Problem, Drift *journal.Record
}

// Index answers questions about records. It is built on demand and kept by nobody for long.
type Index struct{ tr tracker[*journal.Record] }

// NewIndex indexes records given in the order of ReadAll; records of targets that are gone are dropped. Without same, texts are compared.
func NewIndex(records []journal.Record, same Same) *Index {
	x := &Index{tr: newTracker[*journal.Record](same)}
	for i := range records {
		x.tr.add(&records[i], &records[i])
	}
	return x
}

// Entries lists everything, ordered as plans are.
func (x *Index) Entries() []Entry {
	var out []Entry
	for _, sub := range x.tr.of {
		for k, s := range sub.settings {
			out = append(out, Entry{
				Target: sub.target, Knob: k.knob, Key: k.key,
				Original: cmp.Or(s.theirs, s.first), Runtime: s.rec[slotRuntime], Done: s.rec[slotDone], Value: s.rec[slotValue],
				Restore: s.rec[slotRestore], Proof: s.rec[slotProof], Problem: s.rec[slotProblem], Drift: s.rec[slotDrift],
			})
		}
	}
	slices.SortFunc(out, compareEntries)
	return out
}

func compareEntries(a, b Entry) int {
	ka, _ := plan.ParseKnob(a.Knob)
	kb, _ := plan.ParseKnob(b.Knob)
	return cmp.Or(cmp.Compare(a.Target.Level, b.Target.Level), cmp.Compare(a.Target.Name, b.Target.Name),
		cmp.Compare(a.Target.Cgroup, b.Target.Cgroup), cmp.Compare(a.Target.Container, b.Target.Container),
		cmp.Compare(ka, kb), cmp.Compare(a.Knob, b.Knob), cmp.Compare(a.Key, b.Key))
}
