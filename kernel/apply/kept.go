// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/plan"
)

// kept is the file of a cgroup's burst that stays open from the first write until the cgroup is forgotten. A burst has to fall while a kubelet
// waits, before its smaller quota, and to look the file up takes about as long as the kernel's write. The zero value is none.
type kept struct {
	file string
	fd1  int // the descriptor plus one
	// inode is that of the file's directory, which cannot be another one as long as the file can be read.
	inode uint64
}

// keptLimit is how many files may be kept: a quarter of the process's descriptors, and 4096 at most.
func keptLimit() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int64(min(l.Cur/4, 4096))
}

// lent is a file that a session has open and its target is to keep.
type lent struct {
	t *target
	kept
}

// lend has the batch use what is kept of its bursts.
func (b *batch) lend() {
	for i := range b.p {
		if b.p[i].Knob != plan.CPUBurst {
			continue
		}
		t := b.find(b.p[i].Target)
		k := t.kept
		if k.fd1 == 0 {
			continue
		}
		if !root.Alive(k.fd1 - 1) {
			b.unkeep(t) // its cgroup was removed; there may be another one at that path
			continue
		}
		t.kept = kept{} // from now on the session closes it, unless it gives it back
		b.keptNow.Add(-1)
		b.files.Lend(k.file, k.fd1-1)
		b.lent = append(b.lent, lent{t, k})
		b.inodes = append(b.inodes, inodeOf{dirOf(k.file), k.inode})
	}
}

// opened adds the bursts that were written to what is to be kept.
func (b *batch) opened() {
	for i := range b.p {
		if b.p[i].Knob != plan.CPUBurst || b.results[i].Outcome != Written {
			continue
		}
		t, dir := b.find(b.p[i].Target), dirOfChange(&b.p[i], &b.changes[i])
		inode, known := b.inodeAt(dir)
		if !known || slices.ContainsFunc(b.lent, func(l lent) bool { return l.t == t }) {
			continue
		}
		b.lent = append(b.lent, lent{t, kept{file: b.changes[i].Writes[0].File, inode: inode}})
	}
}

// giveBack has targets keep what the session has open of theirs. Nobody is waited for: what somebody else is at is closed, and opened by
// whoever writes it next.
func (b *batch) giveBack() {
	for _, l := range b.lent {
		if !l.t.mu.TryLock() {
			continue
		}
		if !l.t.dead && l.t.kept.fd1 == 0 && b.keptNow.Load() < b.keptMost.Load() {
			if fd, ok := b.files.Take(l.file); ok {
				l.fd1 = fd + 1
				l.t.kept = l.kept
				b.keptNow.Add(1)
			}
		}
		l.t.mu.Unlock()
	}
}

// unkeep closes what is kept of a target that the caller has locked.
func (a *Applier) unkeep(t *target) {
	if t.kept.fd1 > 0 {
		unix.Close(t.kept.fd1 - 1) //nolint:errcheck // kernel files report errors in write
		t.kept = kept{}
		a.keptNow.Add(-1)
	}
}

// dirOf is the directory of an absolute path.
func dirOf(file string) string { return file[:strings.LastIndexByte(file, '/')] }
