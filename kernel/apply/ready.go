// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import "github.com/koord-rt/koord-rt/model/plan"

// A container's start waits for its proof, and to look up a file of a cgroup that was made a moment ago takes the kernel several times as long as to
// read it. So a session may be made ready while the runtime prepares the container: its files are open when the start comes, which
// reads them then.

// readyLimit bounds the sessions that are ready: a container is started soon after it was made.
const readyLimit = 64

// Ready opens the files that a plan's proof will read, for the Start of the container at t. It reports whether there is nothing to come back for:
// where files are missing yet, nothing is kept. What stands in them is not looked at.
func (a *Applier) Ready(t plan.Target, all plan.Plan) (enough bool) {
	if len(all) == 0 || a.readyMost.Load() == 0 {
		return true
	}
	if a.readyNow.Load() >= a.readyMost.Load() {
		if a.evict(); a.readyNow.Load() >= a.readyMost.Load() {
			return true
		}
	}
	s := a.open()
	defer func() { s.end() }()
	if !s.look(all) {
		return false
	}
	held := a.take(keyOf(t))
	old := a.unready(held)
	if a.readyMost.Load() > 0 { // else this Applier has been closed meanwhile
		held.ready, s = s, nil
		a.readyNow.Add(1)
	}
	held.mu.Unlock()
	old.end()
	return true
}

// Unready gives back what was made ready for a container that has started without it, or will not.
func (a *Applier) Unready(t plan.Target) {
	if held := a.readyAt(t); held != nil {
		held.mu.Lock()
		s := a.unready(held)
		held.mu.Unlock()
		s.end()
	}
}

// readyAt is the target of a container for which something may be ready, nil for none.
func (a *Applier) readyAt(t plan.Target) *target {
	if a.readyNow.Load() == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.targets[keyOf(t)]
}

// look opens what verify will read: the files, and where that asks for processes the list of them and its directory.
func (a *session) look(p plan.Plan) bool {
	defer a.held.Many(false)
	for i := range p {
		s := &p[i]
		var file string
		var err error
		switch {
		case s.Observe || isSpecOnly(s.Knob) || unplaced(s.Target):
			continue
		case s.Knob.OfProcesses():
			file, err = a.fs.ProcsDir(s.Target)
			file += "/cgroup.procs"
			a.held.Many(true)
		case isCgroupKnob(s.Knob):
			file, err = a.fs.Path(s.Target, s.Knob)
			a.held.Many(a.neighbours(p, s) >= manyFiles)
		default:
			continue
		}
		if err != nil || a.held.Open(file) != nil {
			return false
		}
	}
	return true
}

// starting is the session of a container's start: the one that is ready for it, else a new one. Nobody is waited for.
func (a *Applier) starting(t plan.Target) (s *session, ready bool) {
	if held := a.readyAt(t); held != nil && held.mu.TryLock() {
		s = a.unready(held)
		held.mu.Unlock()
	}
	if s == nil {
		return a.open(), false
	}
	return s, true
}

// unready takes what is ready for a container away. The caller has locked the target.
func (a *Applier) unready(t *target) *session {
	s := t.ready
	if s != nil {
		t.ready = nil
		a.readyNow.Add(-1)
	}
	return s
}

// end is close for a session that may be nil.
func (s *session) end() {
	if s != nil {
		s.close()
	}
}
