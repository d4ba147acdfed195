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

// stalled takes a pod's pressure in, but for the time of the same interval for which its own limits made it wait; where that is not known yet it says
// nothing of others.
func (a *accounts) stalled(f *Facts, s *State, m *engine.Member) {
	uid := m.Pod.UID
	stall := f.last(sample.OfPod(uid), sample.StallCPUSome)
	if !stall.Known() || !s.OwnKnown(f.Window, m, f.Now) {
		return
	}
	micros := stall.Last
	if own := f.last(sample.OfPod(uid), sample.StallCPUOwn); own.To == stall.To { // told only where there is some
		micros = max(micros-own.Last, 0)
	}
	a.stalls = append(a.stalls, suppress.Stall{Pod: uid, Some: unit.Fraction(micros / float64(unit.Second)), At: stall.To})
}

// OwnKnown reports whether it is known what limits of a pod and of its containers do to it: so much of its pressure is nobody else's doing. The kernel
// counts the time of each limit apart and on each CPU (cpu.stat, Documentation/scheduler/sched-bwc.rst), so the sum is rather too long than too short,
// though no longer than time allows; the pod's pressure has them all. It is not known while somebody with a limit has just begun: it is stopped by that more
// than ever.
func (s *State) OwnKnown(w Window, m *engine.Member, now unit.Micros) bool {
	known := s.ownKnown(w, sample.OfPod(m.Pod.UID), m.Pod.UID, &m.Pod.Base, now)
	for _, c := range m.Containers {
		known = s.ownKnown(w, sample.OfContainer(c.ID), c.ID, &c.Base, now) && known // each of them is noted
	}
	return known
}

func (s *State) ownKnown(w Window, of sample.Subject, id string, asked *workload.Resources, now unit.Micros) bool {
	if asked.Quota.Or(0) <= 0 {
		return true
	}
	_, _, read := w.Last(of, sample.CPUUsage, now-readWithin, now+1)
	return s.read(id, read, now)
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
