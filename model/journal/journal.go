// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package journal defines the record that is kept of every value written to the kernel (D7): what stood there before,
// what was written, by whom, why and when.
//
// kernel/apply produces records, daemon/ledger stores them, koordctl reads them. It imports model/plan, api/protocol and
// the standard library only.
package journal

import (
	"slices"
	"time"

	"github.com/koord-rt/koord-rt/model/plan"
)

// Via is the way a value took into the kernel.
type Via string

// The ways.
const (
	// ViaDirect: we wrote the file.
	ViaDirect Via = "direct"
	// ViaRuntime: the value stands in the runtime's spec (NRI or CRI) and the runtime wrote it.
	ViaRuntime Via = "runtime"
	// ViaSystemd: additionally set as a property of the unit.
	ViaSystemd Via = "systemd"
	// ViaObserve: planned only (D14).
	ViaObserve Via = "observe"
	// ViaRestore: an original was written back. What the runtime's own record of a container has is another matter.
	ViaRestore Via = "restore"
	// ViaTold: that record brings nothing of ours back any more: the runtime was told, or has something else there, has forgotten the container, or
	// is one that does not write its record again.
	ViaTold Via = "told"
	// ViaProof: nothing was written; the value was read back at start (D9).
	ViaProof Via = "proof"
	// ViaProblem: input that could not be used; Reason says why.
	ViaProblem Via = "problem"
	// ViaMade: the target, a resctrl group, is ours: made by us, or a pod's own that we keep. It goes when nobody uses it.
	ViaMade Via = "made"
	// ViaEvent: nothing was written; something happened to a pod (it was evicted, disturbed …). Knob says what. Such records
	// stand in the node agent's audit, never in a ledger of writes.
	ViaEvent Via = "event"
	// ViaDrift: nothing was written; a value that stood was found to be another (Found), and was or is repaired. Source says who
	// may have written that.
	ViaDrift Via = "drift"
	// ViaBeside: we are about to set properties of a unit, and systemd then writes Written over Original by itself; that is put back at
	// once, unless we are killed before. It is no wish of ours.
	ViaBeside Via = "beside"
	// ViaGone: the target was removed; its records can be dropped.
	ViaGone Via = "gone"
)

// Record is one line of a ledger.
type Record struct {
	Time time.Time `json:"t"`
	// Up is nanoseconds since boot (CLOCK_BOOTTIME), set just before the record is written: the time of day may be set back. It puts records of several
	// processes in order; of two that write to one knob at the same moment it does not tell who came last.
	Up uint64 `json:"up,omitempty"`
	// Boot is /proc/sys/kernel/random/boot_id and Inode the cgroup directory's: together they identify a cgroup, whose
	// path may be reused.
	Boot   string      `json:"boot,omitempty"`
	Inode  uint64      `json:"ino,omitempty"`
	Target plan.Target `json:"target"`
	Knob   string      `json:"knob,omitempty"`
	Key    string      `json:"key,omitempty"`
	// Files are the kernel files that carry the value, absolute; Original their content before our first write (absent
	// when nothing was read), Written what we wrote.
	Files    []string `json:"files,omitempty"`
	Original []string `json:"orig,omitempty"`
	Written  []string `json:"wrote,omitempty"`
	// Base is the value that the kubelet asked for, for fields that go through the runtime's spec.
	Base string `json:"base,omitempty"`
	// Want is the wanted value in the knob's unit.
	Want   string `json:"want,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Reason string `json:"reason,omitempty"`
	Via    Via    `json:"via"`
	// Err is empty on success; for ViaProof it names what was read instead. A failed write has a record that takes it back, without
	// Written, and one with Written for what of it has gone in all the same.
	Err string `json:"err,omitempty"`
	Gen uint64 `json:"gen,omitempty"`
	// Theirs: Original is none of what this process remembers to have written, so somebody else has changed the value since: it is
	// theirs that a restore returns to, unless another process of ours or the runtime had written it.
	Theirs bool `json:"theirs,omitempty"`
	// Judged: none of them had, as the ledgers of all told when this one was compacted. They may tell less by now.
	Judged bool `json:"judged,omitempty"`
	// Found is the value in the knob's unit that was found instead of ours, of ViaDrift and where it is Theirs. Source is of ViaDrift:
	// model/drift's name of who may have written it.
	Found  string `json:"found,omitempty"`
	Source string `json:"source,omitempty"`
}

// Before reports whether a record of one writer was made before one of another: by the machine's own clock, where both have it.
func (r *Record) Before(other *Record) bool {
	if r.Up > 0 && other.Up > 0 && (r.Boot == other.Boot || r.Boot == "" || other.Boot == "") {
		return r.Up < other.Up
	}
	return r.Time.Before(other.Time)
}

// Age is how long before now, which is up after the start of a boot, the record was made: by the machine's own clock, as the time of day may have
// been set since. That counts only where the writer did not stamp the other, or in another boot. A record of an older release does not say in
// which: what its stamp says to lie ahead is of another.
func (r *Record) Age(now time.Time, up time.Duration, boot string) time.Duration {
	if made := time.Duration(r.Up); made > 0 && made <= up && (r.Boot == boot || r.Boot == "") { //nolint:gosec // nanoseconds since boot; more than fit are nobody's
		return up - made
	}
	return now.Sub(r.Time)
}

// Recent is how many of the newest writes of a knob that differ in what they wrote can matter: the last, one that gave back, and the
// one before, which stands where we were killed before the last was made. Compaction keeps so many, and a restore asks for no more.
const Recent = 3

// TakesBack reports whether r says that w was refused: a write is recorded before it is tried, and its refusal is the same record
// without contents. Errors without files were noticed before anything was tried.
func (r *Record) TakesBack(w *Record) bool {
	return r.Err != "" && len(r.Written) == 0 && len(r.Files) > 0 && r.Via == w.Via && r.Want == w.Want && r.Gen == w.Gen &&
		r.Boot == w.Boot && r.Inode == w.Inode && slices.Equal(r.Files, w.Files)
}

// ID identifies what the record is about.
func (r *Record) ID() (plan.ID, bool) {
	k, ok := plan.ParseKnob(r.Knob)
	return plan.ID{Target: r.Target, Knob: k, Key: r.Key}, ok
}

// Journal stores records in order. Append must not wait for a disk: the files lie on tmpfs and are not synced.
type Journal interface {
	Append(records ...Record) error
}
