// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"slices"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// Beginner is somebody with a limit, a container by its id or a pod by its UID, of whose CPU there was no figure when it was looked for.
type Beginner struct {
	ID    string      `json:"id"`
	Since unit.Micros `json:"since"`
}

const (
	// readWithin is how old a figure may be that tells that somebody is read at all: figures are late on a node that is short of CPU, and who has
	// ended is listed for a while.
	readWithin = unit.Minute
	// begins is how long nothing may be known of who has just begun. Later it is somebody who cannot be read, as in a sandbox that is a machine.
	begins = 5 * unit.Second
	// forgets is how long one who never had a figure is remembered, maxBeginners how many are: most have ended.
	forgets      = 10 * unit.Minute
	maxBeginners = 256
)

// stalled takes a pod's pressure in, but for the time for which its own limit made it wait; where that is not known yet it says nothing of others.
func (a *accounts) stalled(f *Facts, s *State, m *engine.Member) {
	uid := m.Pod.UID
	stall := f.last(sample.OfPod(uid), sample.StallCPUSome)
	if !stall.Known() {
		return
	}
	own, known := s.Own(f.Window, m, f.Now-2*f.Interval, f.Now)
	if !known {
		return
	}
	a.stalls = append(a.stalls, suppress.Stall{Pod: uid, Some: max(unit.Fraction(stall.Last/float64(unit.Second))-own, 0), At: stall.To})
}

// Own is the part of the time for which limits of a pod and of its containers stopped it at last in (from, now]: so much of its pressure is nobody
// else's doing. The kernel counts the time of each limit apart and on each CPU (cpu.stat, Documentation/scheduler/sched-bwc.rst), so the sum is rather
// too long than too short; the pod's pressure has them all. It is not known while somebody with a limit has just begun: it is stopped by that more than
// ever, and the first figure of a counter takes two readings.
func (s *State) Own(w Window, m *engine.Member, from, now unit.Micros) (part unit.Fraction, known bool) {
	micros, known := s.stopped(w, sample.OfPod(m.Pod.UID), m.Pod.UID, &m.Pod.Base, from, now)
	for _, c := range m.Containers {
		of, read := s.stopped(w, sample.OfContainer(c.ID), c.ID, &c.Base, from, now)
		micros, known = micros+of, known && read
	}
	return unit.Fraction(micros / float64(unit.Second)), known
}

// stopped is how long in a second a limit stopped somebody at last; not known of a beginner.
func (s *State) stopped(w Window, of sample.Subject, id string, asked *workload.Resources, from, now unit.Micros) (micros float64, known bool) {
	micros, _, _ = w.Last(of, sample.CPUThrottledTime, from, now+1) // told only where there is some
	if asked.Quota.Or(0) <= 0 {
		return micros, true
	}
	_, _, read := w.Last(of, sample.CPUUsage, now-readWithin, now+1)
	return micros, s.read(id, read, now)
}

// read notes whether somebody has figures, and reports false while there may be some soon. A former state is not changed.
func (s *State) read(id string, has bool, now unit.Micros) bool {
	i := slices.IndexFunc(s.Beginners, func(u Beginner) bool { return u.ID == id })
	switch {
	case has && i >= 0:
		s.Beginners = slices.Delete(slices.Clone(s.Beginners), i, i+1)
		return true
	case has:
		return true
	case i < 0:
		s.Beginners = slices.DeleteFunc(slices.Clone(s.Beginners), func(b Beginner) bool { return now-b.Since >= forgets })
		if len(s.Beginners) == maxBeginners {
			s.Beginners = s.Beginners[1:]
		}
		s.Beginners = append(s.Beginners, Beginner{id, now})
		return false
	case now < s.Beginners[i].Since: // another clock
		s.Beginners = slices.Clone(s.Beginners)
		s.Beginners[i].Since = now
	}
	return now-s.Beginners[i].Since >= begins
}
