// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/plan"
)

// session is one pass over the kernel: what it opens stays open until its end, bursts beyond it (kept). A file that is written is so looked up
// once, for its original, the write and the proof.
type session struct {
	*Applier
	fs    cgroup.FS
	files root.Files
	held  *root.Files // files, or nil where every use opens and closes
	batch batch
}

// idleSessions bounds how many are kept, idleSettings the plans that they have room for.
const (
	idleSessions = 8
	idleSettings = 64
)

// open begins a session; close ends it.
func (a *Applier) open() *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.idle); n > 0 {
		s := a.idle[n-1]
		a.idle = a.idle[:n-1]
		return s
	}
	s := &session{Applier: a}
	s.held = &s.files
	s.fs = a.o.FS.Over(s.held)
	return s
}

// bare is a session for work that looks at each file once.
func (a *Applier) bare() *session { return &session{Applier: a, fs: a.o.FS} }

func (s *session) close() {
	s.again()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) < idleSessions && cap(s.batch.changes) <= idleSettings {
		s.idle = append(s.idle, s)
	}
}

// again has the session begin anew, with nothing open.
func (s *session) again() {
	s.batch.giveBack()
	s.files.Close()
	s.batch.reset()
}

// Start is Apply of todo and then Verify of all, in one session, for the start of the container at t: the one that is Ready. release gives
// descriptors back: what the kernel does then need not be waited for. It must be called once.
func (a *Applier) Start(
	ctx context.Context, t plan.Target, todo, all plan.Plan, gen uint64,
) (results []Result, bad []Mismatch, release func()) {
	s, ready := a.starting(t)
	defer func() {
		if release == nil {
			s.close() // it panicked
		}
	}()
	// What is open may be of a cgroup that was removed, and there may be another one by now: there nothing is written, and no failure is believed.
	if ready && len(todo) > 0 && !s.files.Alive() {
		s.again()
	}
	results, bad = s.apply(ctx, todo, gen), s.verify(all)
	if ready && len(bad) > 0 {
		s.again()
		bad = s.verify(all)
	}
	s.batch.giveBack() // not with the release: who asks for Last meanwhile would be told that somebody writes
	return results, bad, s.close
}

// onKernel reports whether the knobs' files are the kernel's. Those of a tree on paper have to be truncated before they
// are written, so they are opened anew for that.
func onKernel(fs cgroup.FS) bool {
	for _, k := range [...]plan.Knob{plan.CPUShares, plan.MemoryLimit} {
		dir, err := fs.Dir(plan.Target{Cgroup: "/"}, k)
		if err != nil {
			continue
		}
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) != nil || st.Type != unix.CGROUP_SUPER_MAGIC && st.Type != unix.CGROUP2_SUPER_MAGIC {
			return false
		}
	}
	return true
}
