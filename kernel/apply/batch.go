// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// batch is one Apply. Records of writes that do not bear on each other are gathered and appended together; the writes
// follow, in order. So a batch of n independent values costs one write to the journal and not n, and each record still
// stands there before its value stands in the kernel.
//
// Its lists are used again by the next one of its session.
type batch struct {
	*session
	p       plan.Plan
	gen     uint64
	keys    []string
	targets []*target // locked, in the order of keys
	results []Result
	steps   []step
	// changes are the comparisons made at the beginning, by index in the plan.
	changes []cgroup.Change
	// records wait to be appended; waiting says what each is for.
	records []journal.Record
	waiting []staged
	// written are the settings written so far.
	written []plan.Setting
	inodes  []inodeOf
	// lent are files that targets are to keep.
	lent []lent
}

// reset drops what was worked on and keeps the room.
func (b *batch) reset() {
	clear(b.keys)
	clear(b.targets)
	clear(b.changes)
	b.forgetStaged()
	clear(b.written)
	clear(b.inodes)
	clear(b.lent)
	*b = batch{
		keys: b.keys[:0], targets: b.targets[:0], steps: b.steps[:0], changes: b.changes[:0], records: b.records, waiting: b.waiting,
		written: b.written[:0], inodes: b.inodes[:0], lent: b.lent[:0],
	}
}

func (b *batch) forgetStaged() {
	clear(b.records)
	clear(b.waiting)
	b.records, b.waiting = b.records[:0], b.waiting[:0]
}

// staged is one record that waits, with the write that follows it; a note has none.
type staged struct {
	index  int
	target *target
	s      plan.Setting
	c      cgroup.Change
	note   bool
}

// inodeOf caches an inode for one Apply: its settings share a directory or a few.
type inodeOf struct {
	dir   string
	inode uint64
}

// families are knobs that the kernel, or one file, ties together: what is written to one may be read for another.
var families = [...]plan.Knobs{
	plan.KnobSet(plan.CPUQuota, plan.CPUPeriod, plan.CPUBurst),
	plan.KnobSet(plan.CPUShares, plan.CPUIdle),
	plan.KnobSet(plan.IOReadBPS, plan.IOWriteBPS, plan.IOReadIOPS, plan.IOWriteIOPS),
	resctrlKnobs,
}

// resctrlKnobs live in resctrl's groups, which are no part of the cgroup tree.
var resctrlKnobs = plan.KnobSet(plan.RDTClass, plan.RDTMonGroup, plan.RDTSchemata)

// related reports whether the write of x may change what has to be read for y: the same knob or one of its family, on
// the same cgroup, above or below it. Groups of resctrl have no such place and are taken as related.
func related(x, y *plan.Setting) bool {
	same := x.Knob == y.Knob
	for _, f := range families {
		same = same || f.Has(x.Knob) && f.Has(y.Knob)
	}
	if !same || resctrlKnobs.Has(x.Knob) {
		return same
	}
	return x.Target.Cgroup == y.Target.Cgroup || below(x.Target.Cgroup, y.Target.Cgroup) || below(y.Target.Cgroup, x.Target.Cgroup)
}

// below reports whether path lies below dir.
func below(path, dir string) bool {
	dir = strings.TrimRight(dir, "/")
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// waitsFor reports whether a write that is still waiting bears on s.
func (b *batch) waitsFor(s plan.Setting) bool {
	for i := range b.waiting {
		if w := &b.waiting[i]; !w.note && related(&w.s, &s) {
			return true
		}
	}
	return false
}

// touched reports whether a write of this batch bears on s.
func (b *batch) touched(s plan.Setting) bool {
	for i := range b.written {
		if related(&b.written[i], &s) {
			return true
		}
	}
	return false
}

// note has a value that was not written journaled, once per value.
func (b *batch) note(index int, t *target, s plan.Setting, via journal.Via) {
	if !t.remember(s, via, "") {
		return
	}
	r := b.record(t, s, via, "")
	if path, err := b.fs.Path(s.Target, s.Knob); err == nil {
		r.Files = []string{path}
	}
	b.records = append(b.records, r)
	b.waiting = append(b.waiting, staged{index: index, target: t, s: s, note: true})
}

// stage has a change recorded and written.
func (b *batch) stage(index int, t *target, s plan.Setting, c cgroup.Change) {
	r := b.record(t, s, journal.ViaDirect, dirOfChange(&s, &c))
	b.fill(&r, t, s, c)
	b.records = append(b.records, r)
	b.waiting = append(b.waiting, staged{index: index, target: t, s: s, c: c})
}

// flush appends what waits and then writes it.
func (b *batch) flush(ctx context.Context) {
	if len(b.records) == 0 {
		return
	}
	err := b.o.Journal.Append(b.records...)
	for i := range b.waiting {
		w, rec, r := &b.waiting[i], b.records[i], &b.results[b.waiting[i].index]
		if err != nil && len(b.records) > 1 {
			// One record alone may be what cannot be kept; the others must not fail for it.
			rerr := b.o.Journal.Append(rec)
			b.finish(ctx, w, rec, r, rerr)
			continue
		}
		b.finish(ctx, w, rec, r, err)
	}
	b.forgetStaged()
}

// finish writes what has been recorded; err says that it has not.
func (b *batch) finish(ctx context.Context, w *staged, rec journal.Record, r *Result, err error) {
	switch {
	case err != nil && w.note:
		w.target.forget(w.s)
		r.Err = fmt.Errorf("record %s of %s: %w", w.s.Knob, w.s.Target, err)
	case err != nil:
		r.fail(notRecorded(w.s, err))
	case !w.note:
		b.write(ctx, b.p, w.target, w.s, w.c, rec, r)
		b.written = append(b.written, w.s)
	}
}

// dirOfChange is the directory of a cgroup file that is to be written, "" for other knobs.
func dirOfChange(s *plan.Setting, c *cgroup.Change) string {
	if !isCgroupKnob(s.Knob) || len(c.Writes) == 0 {
		return ""
	}
	return dirOf(c.Writes[0].File)
}

// record starts a record. The inode is looked up once per directory and Apply and kept no longer, since a path may be reused, unless what is
// written is a file that has stayed open. dir is the setting's directory where it is known.
func (b *batch) record(t *target, s plan.Setting, via journal.Via, dir string) journal.Record {
	if hasNoInode(s.Knob) {
		return b.recordAt(s, via, b.gen, 0) // directories of /proc get other inodes at any time
	}
	if dir == "" {
		var err error
		if dir, err = b.dirOf(s.Target, s.Knob); err != nil {
			return b.recordAt(s, via, b.gen, 0)
		}
	}
	if s.Knob == plan.CPUBurst {
		if l := b.lentOf(t); l != nil {
			t.inode = l.inode
			return b.recordAt(s, via, b.gen, l.inode)
		}
	}
	if inode, known := b.inodeAt(dir); known {
		return b.recordAt(s, via, b.gen, inode)
	}
	inode, err := b.held.Inode(dir)
	if err == nil {
		t.inode = inode
		b.inodes = append(b.inodes, inodeOf{dir, inode})
	}
	return b.recordAt(s, via, b.gen, inode)
}

// inodeAt is the inode of a directory that has been looked up.
func (b *batch) inodeAt(dir string) (inode uint64, known bool) {
	for i := range b.inodes {
		if b.inodes[i].dir == dir {
			return b.inodes[i].inode, true
		}
	}
	return 0, false
}
