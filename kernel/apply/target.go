// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// target serialises the writes to one cgroup and remembers what the journal has already been told of it.
type target struct {
	key    string
	mu     sync.Mutex
	dead   bool // forgotten; a waiter must look it up again
	inode  uint64
	notes  []note
	own    []own
	late   []*lateWrite
	beside beside
	kept   kept
	ready  *session // for its start
}

// note is the last thing recorded of one knob.
type note struct {
	knob  plan.Knob
	via   journal.Via
	key   string
	value plan.Value
	err   string
}

func keyOf(t plan.Target) string {
	if t.Level == plan.LevelGroup {
		return "resctrl:" + t.Cgroup
	}
	return t.Cgroup
}

// lock takes every target of the plan in one fixed order, so that two plans cannot wait for each other in a circle.
func (b *batch) lock(p plan.Plan) {
	for i := range p {
		if k := keyOf(p[i].Target); !slices.Contains(b.keys, k) {
			b.keys = append(b.keys, k)
		}
	}
	slices.Sort(b.keys)
	for _, k := range b.keys {
		b.targets = append(b.targets, b.take(k))
	}
}

func (b *batch) unlock() {
	for _, t := range b.targets {
		t.mu.Unlock()
	}
}

// find is the locked target of a setting of the plan.
func (b *batch) find(t plan.Target) *target {
	i, _ := slices.BinarySearch(b.keys, keyOf(t))
	return b.targets[i]
}

// take locks one target, again when it was forgotten while we waited.
func (a *Applier) take(key string) *target {
	for {
		a.mu.Lock()
		t := a.targets[key]
		if t == nil {
			t = &target{key: key}
			a.targets[key] = t
		}
		a.mu.Unlock()
		t.mu.Lock()
		if !t.dead {
			return t
		}
		t.mu.Unlock()
	}
}

// Forget drops what is remembered of targets that were removed and journals their end.
func (a *Applier) Forget(targets ...plan.Target) error {
	records := make([]journal.Record, 0, len(targets))
	for _, t := range targets {
		held := a.take(keyOf(t))
		held.dead = true
		a.mu.Lock()
		delete(a.targets, held.key)
		a.mu.Unlock()
		k, s := a.unkeep(held), a.unready(held)
		inode := held.inode
		held.mu.Unlock()
		k.close()
		s.end()
		records = append(records, journal.Record{Time: a.o.Now(), Boot: a.boot, Inode: inode, Target: t, Via: journal.ViaGone})
	}
	return a.o.Journal.Append(records...)
}

// dirOf is the directory whose inode identifies the target for this knob: on v1 every controller has its own.
func (a *Applier) dirOf(t plan.Target, k plan.Knob) (string, error) {
	switch {
	case t.Level == plan.LevelGroup:
		return root.Join(a.o.Roots.Resctrl, t.Cgroup)
	case a.o.FS.IsFile(k):
		return a.o.FS.Dir(t, k)
	default:
		return a.o.FS.ProcsDir(t)
	}
}

// record starts a journal record of a setting.
func (a *session) record(t *target, s plan.Setting, via journal.Via, gen uint64) journal.Record {
	var inode uint64
	if dir, err := a.dirOf(s.Target, s.Knob); err == nil && !hasNoInode(s.Knob) {
		if inode, err = a.held.Inode(dir); err == nil {
			t.inode = inode
		}
	}
	return a.recordAt(s, via, gen, inode)
}

// recordAt is record for a known inode.
func (a *Applier) recordAt(s plan.Setting, via journal.Via, gen, inode uint64) journal.Record {
	return journal.Record{
		Time: a.o.Now(), Boot: a.boot, Inode: inode, Target: s.Target, Knob: s.Knob.String(), Key: s.Key,
		Want: s.Value.String(), Owner: s.By(), Reason: s.Reason, Via: via, Gen: gen,
	}
}

// failed journals an error, once until it changes.
func (a *session) failed(t *target, r *Result, gen uint64) {
	s := r.Setting
	if r.Err == nil || !t.remember(s, journal.ViaDirect, r.Err.Error()) {
		return
	}
	rec := a.record(t, s, journal.ViaDirect, gen)
	rec.Err = r.Err.Error()
	if err := a.o.Journal.Append(rec); err != nil {
		r.Err = errors.Join(r.Err, fmt.Errorf("record it: %w", err))
	}
}

// remember stores a note and reports whether it is news.
func (t *target) remember(s plan.Setting, via journal.Via, err string) bool {
	n := note{knob: s.Knob, via: via, key: s.Key, value: s.Value, err: err}
	i := t.at(s)
	if i < 0 {
		n.key = strings.Clone(n.key)
		t.notes = append(t.notes, n)
		return true
	}
	news := t.notes[i] != n
	t.notes[i] = n
	return news
}

func (t *target) forget(s plan.Setting) {
	if s.Knob == besideKnob {
		t.beside.told, t.beside.lost = "", ""
	}
	if i := t.at(s); i >= 0 {
		t.notes = slices.Delete(t.notes, i, i+1)
	}
}

func (t *target) at(s plan.Setting) int {
	return slices.IndexFunc(t.notes, func(n note) bool { return n.knob == s.Knob && n.key == s.Key })
}
