// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/plan"
)

// kept is the file of a cgroup's burst that stays open when it has been looked up to be written: until the cgroup is forgotten, unless others need
// the room or two are at it. A burst has to fall while a kubelet waits, before its smaller quota, and to look the file up takes about as long
// as the kernel's write. The zero value is none.
type kept struct {
	file string
	fd1  int // the descriptor plus one
	// inode is that of the file's directory. A file that can be read is of that one, also where a hand has moved it meanwhile, which cgroup
	// v1 allows.
	inode uint64
}

// lentMost bounds what one batch is lent: it needs room for other files (root.Files).
const lentMost = 16

// evictTries bounds how many targets are looked at for a dead file where there is no room for another one: a handler may be waiting.
const evictTries = 8

// keptLimit is about how many files may be kept: a quarter of the process's descriptors, and 1024 at most, as the kernel holds a page for each.
func keptLimit() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int64(min(l.Cur/4, 1024))
}

// lent is a file that a session has open and its target is to keep.
type lent struct {
	t *target
	kept
}

// lend has the batch use what is kept of its bursts.
func (b *batch) lend() {
	for i := range b.p {
		if b.p[i].Knob != plan.CPUBurst || b.p[i].Observe || len(b.lent) >= lentMost {
			continue
		}
		t := b.find(b.p[i].Target)
		k := b.unkeep(t)
		if k.fd1 == 0 {
			continue
		}
		b.files.Lend(k.file, k.fd1-1) // from now on the session closes it, unless it gives it back
		b.lent = append(b.lent, lent{t, k})
	}
}

// unlend closes what is lent of a target's burst, and reports whether anything was: its cgroup may have been removed, and there may be another one
// at that path.
func (b *batch) unlend(t *target, k plan.Knob) bool {
	l := b.lentOf(t)
	if k != plan.CPUBurst || l == nil {
		return false
	}
	if fd, ok := b.files.Take(l.file); ok {
		kept{fd1: fd + 1}.close()
	}
	b.lent = slices.DeleteFunc(b.lent, func(l lent) bool { return l.t == t })
	return true
}

// opened adds the bursts that were looked up to what is to be kept.
func (b *batch) opened() {
	if b.keptMost.Load() == 0 {
		return
	}
	for i := range b.p {
		s, r := &b.p[i], &b.results[i]
		if s.Knob != plan.CPUBurst || s.Value.Int() <= 0 || r.Outcome != Written && r.Outcome != Unchanged || len(b.lent) >= lentMost {
			continue
		}
		t := b.find(s.Target)
		if b.lentOf(t) != nil {
			continue
		}
		file, err := b.fs.Path(s.Target, s.Knob)
		if err != nil {
			continue
		}
		if inode, err := b.held.Inode(dirOf(file)); err == nil {
			b.lent = append(b.lent, lent{t, kept{file: file, inode: inode}})
		}
	}
}

// lentOf is what the batch has of a target's, nil for nothing.
func (b *batch) lentOf(t *target) *lent {
	if i := slices.IndexFunc(b.lent, func(l lent) bool { return l.t == t }); i >= 0 {
		return &b.lent[i]
	}
	return nil
}

// giveBack has targets keep what the session has open of theirs. Nobody is waited for: what somebody else is at is closed with the session,
// and opened by whoever writes it next.
func (b *batch) giveBack() {
	for _, l := range b.lent {
		if b.keptNow.Load() >= b.keptMost.Load() {
			b.evict()
		}
		if !l.t.mu.TryLock() {
			continue
		}
		if !l.t.dead && l.t.kept.fd1 == 0 && b.keptNow.Load() < b.keptMost.Load() {
			if fd, ok := b.files.Take(l.file); ok {
				l.fd1 = fd + 1
				b.keep(l.t, l.kept)
			}
		}
		l.t.mu.Unlock()
	}
	clear(b.lent)
	b.lent = b.lent[:0]
}

// evict closes some of the files, and of what is ready for a start, whose cgroups are gone: a container that has ended is forgotten when it is
// removed, which may be days later.
func (a *Applier) evict() {
	var some []*target
	a.mu.Lock()
	for _, t := range a.targets { // in an order that changes
		if some = append(some, t); len(some) == evictTries {
			break
		}
	}
	a.mu.Unlock()
	for _, t := range some {
		if !t.mu.TryLock() {
			continue
		}
		var k kept
		if t.kept.fd1 > 0 && !root.Alive(t.kept.fd1-1) {
			k = a.unkeep(t)
		}
		var s *session
		if t.ready != nil && !t.ready.files.Alive() {
			s = a.unready(t)
		}
		t.mu.Unlock()
		k.close()
		s.end()
	}
}

// keep and unkeep give a target a file and take it away. The caller has locked it, and owns the file then.
func (a *Applier) keep(t *target, k kept) {
	t.kept = k
	a.keptNow.Add(1)
}

func (a *Applier) unkeep(t *target) kept {
	k := t.kept
	if k.fd1 > 0 {
		t.kept = kept{}
		a.keptNow.Add(-1)
	}
	return k
}

func (k kept) close() {
	if k.fd1 > 0 {
		unix.Close(k.fd1 - 1) //nolint:errcheck // kernel files report errors in write
	}
}

// Close gives back what is kept open, but for that of cgroups that somebody is still at, and keeps nothing any more. Values are written all
// the same.
func (a *Applier) Close() {
	a.keptMost.Store(0)
	a.readyMost.Store(0)
	a.mu.Lock()
	targets := slices.Collect(maps.Values(a.targets))
	a.mu.Unlock()
	for _, t := range targets {
		if !t.mu.TryLock() {
			continue // a write that hangs must not keep the process from ending
		}
		k, s := a.unkeep(t), a.unready(t)
		t.mu.Unlock()
		k.close()
		s.end()
	}
}

// dirOf is the directory of an absolute path.
func dirOf(file string) string { return file[:strings.LastIndexByte(file, '/')] }
