// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package interference

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Figures of a trial.
const (
	// A trial lasts Pace.Trial and until trialSamples new samples have come, at most nine times as long.
	trialSamples = 2
	// improved is what distress must fall to.
	improved = 0.7
	// acquittal is how long an innocent pod is left alone, and refuted how long one that was held guilty, cut refutes times, while others
	// were disturbed anew as often as anewLeast.
	acquittal = 5 * unit.Minute
	refuted   = 30 * unit.Minute
	refutes   = 3
	anewLeast = 2
	// Pace.Calm must pass before a guilty pod is released; twice as long after each of the first relapses.
	relapses = 4
)

// cut is what a cap leaves of the use, by resource: memory that is taken must be read again.
var cut = [NumResources]Level{CPU: 0.5, Cache: 0.5, Memory: 0.8, Disk: 0.5, Network: 0.5}

// least is what a cap leaves at least, by resource: 0.1 CPU, 16 MiB, 1 MiB/s.
var least = [NumResources]Level{CPU: 0.1, Cache: 0.1, Memory: 16 << 20, Disk: 1 << 20, Network: 1 << 20}

// Phase of a suspicion.
type Phase uint8

// Phases. Trial is entered by the accusation, with the first cut, and left for Guilty when distress falls, or for nothing
// (innocent) when it does not. Guilty lasts until everybody has been calm for a minute, longer after a relapse, and ends for
// nothing when others, once calm, are disturbed anew, and again, although it has been cut three times (to an eighth of CPU time):
// what comes and goes by itself had passed in its trial. Releasing gives back by doubling and ends with the cap, or becomes Guilty again when
// somebody is disturbed meanwhile.
const (
	Trial Phase = iota
	Guilty
	Releasing
)

// String names the phase.
func (p Phase) String() string {
	return [...]string{"on trial", "guilty", "releasing"}[min(p, Releasing)]
}

// Suspicion is one pod held down for one resource.
type Suspicion struct {
	Pod      string   `json:"pod"`
	Name     string   `json:"name,omitempty"`
	Resource Resource `json:"resource"`
	Phase    Phase    `json:"phase"`
	// Limit now, Before what it used when it was accused.
	Limit  Level `json:"limit"`
	Before Level `json:"before"`
	// At is the last change, Distress and Fresh what they were when the trial began.
	At       unit.Micros `json:"at"`
	Distress float64     `json:"distress"`
	Fresh    int64       `json:"fresh"`
	// Relapses counts how often others were disturbed again as it was released.
	Relapses int `json:"relapses,omitempty"`
	// Quiet: nobody is disturbed while it is held guilty. Anew is how often that has ended since it was cut to the lowest.
	Quiet bool `json:"quiet,omitempty"`
	Anew  int  `json:"anew,omitempty"`
	// Correlation and Part at the accusation; Reason of the accusation.
	Correlation float64 `json:"correlation"`
	Part        float64 `json:"part"`
	Reason      string  `json:"reason"`
}

// judge moves every suspicion by one step; those of pods that are gone end.
func (w *work) judge() {
	for _, s := range w.s.Suspects {
		if w.next.find(s.Pod, 0) == nil {
			continue
		}
		if next, keep := w.verdict(s); keep {
			w.next.Suspects = append(w.next.Suspects, next)
		}
	}
}

// verdict is the one place where phases change.
func (w *work) verdict(s Suspicion) (next Suspicion, keep bool) {
	d, now, pace := &w.next.Resource[s.Resource], w.in.Now, &w.in.Pace
	calm := d.CalmSince != 0 && now-d.CalmSince >= pace.Calm<<min(s.Relapses, relapses)
	switch s.Phase {
	case Trial:
		better := d.Recent <= improved*s.Distress || w.disturbed[s.Resource] == 0
		seen := d.Fresh-s.Fresh >= trialSamples
		switch {
		case now-s.At < pace.Trial || !seen && now-s.At < pace.trialMost():
			return s, true
		case better && seen:
			s.Phase, s.At = Guilty, now
			w.event(s.Pod, s.Name, Convicted, "guilty: "+s.figures(d)+" with "+s.Resource.text(s.Limit))
			return s, true
		}
		if p := w.next.find(s.Pod, 0); p != nil {
			p.Innocent[s.Resource] = now + acquittal
		}
		w.event(s.Pod, s.Name, Acquitted, "innocent, released: "+s.figures(d)+" although it was held to "+s.Resource.text(s.Limit))
		return s, false
	case Guilty:
		if s.Quiet && w.disturbed[s.Resource] > 0 && s.Limit <= s.lowest() {
			s.Anew++
		}
		s.Quiet = w.disturbed[s.Resource] == 0
		switch {
		case calm:
			s.Phase, s.Anew = Releasing, 0
			return w.give(s)
		case s.Anew >= anewLeast:
			if p := w.next.find(s.Pod, 0); p != nil {
				p.Innocent[s.Resource] = now + refuted
			}
			w.event(s.Pod, s.Name, Acquitted, "innocent, released: others are disturbed anew, and again, although it is held to "+s.Resource.text(s.Limit)+", and used "+
				s.Resource.text(s.Before)+" when it was accused")
			return s, false
		case w.disturbed[s.Resource] > 0 && now-s.At >= pace.cutAgain() && s.Limit > least[s.Resource]:
			s.Limit, s.At = max(s.Limit*cut[s.Resource], least[s.Resource]), now
			w.event(s.Pod, s.Name, Tightened, "held to "+s.Resource.text(s.Limit)+": others are still disturbed")
		}
		return s, true
	default:
		if w.disturbed[s.Resource] > 0 {
			s.Relapses++
			s.Phase, s.Quiet, s.Limit, s.At = Guilty, false, max(min(s.Limit, s.Before)*cut[s.Resource], least[s.Resource]), now
			w.event(s.Pod, s.Name, Tightened, "held to "+s.Resource.text(s.Limit)+" again: others are disturbed as it gets back its share")
			return s, true
		}
		if now-s.At < pace.giveEvery() {
			return s, true
		}
		return w.give(s)
	}
}

// lowest is what is left of what a pod has used after it was cut often enough to show that it is not the one.
func (s *Suspicion) lowest() Level {
	limit := s.Before
	for range refutes {
		limit *= cut[s.Resource]
	}
	return max(limit, least[s.Resource])
}

// give doubles the limit; at twice what the pod once used the cap ends.
func (w *work) give(s Suspicion) (Suspicion, bool) {
	s.Limit, s.At = s.Limit*2, w.in.Now
	if s.Limit >= s.Before*2 {
		w.event(s.Pod, s.Name, Released, "released: nobody is disturbed any more")
		return s, false
	}
	return s, true
}

func (s *Suspicion) figures(d *ResourceState) string {
	return "distress about " + s.Resource.String() + " went from " + one(s.Distress) + " to " + one(d.Recent)
}

func one(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

// accuse begins a trial where somebody is disturbed and none is under way. A pod found guilty gets the time to show its
// effect first.
func (w *work) accuse(r Resource) {
	d := &w.next.Resource[r]
	if w.disturbed[r] == 0 || d.Recent <= 0 {
		return
	}
	for _, s := range w.next.Suspects {
		if s.Resource == r && (s.Phase == Trial || w.in.Now-s.At < w.in.Pace.cutAgain() && s.Limit > least[r]) {
			return
		}
	}
	c, ok := w.worst(r)
	if !ok {
		return
	}
	used := use(c.pod, r).V
	limit := max(used*cut[r], least[r])
	if limit >= used {
		return
	}
	why := "uses " + r.text(used) + ", " + figure.Percent(unit.Fraction(c.part)) + " of what BE uses"
	if c.known {
		why += ", correlation with the distress of others " + strconv.FormatFloat(c.corr, 'f', 2, 64)
	}
	s := Suspicion{
		Pod: c.pod.UID, Name: c.pod.Name, Resource: r, Phase: Trial, Limit: limit, Before: used, At: w.in.Now,
		Distress: max(d.Recent, d.Now), Fresh: d.Fresh,
		Correlation: c.corr, Part: c.part, Reason: why,
	}
	w.next.Suspects = append(w.next.Suspects, s)
	w.event(s.Pod, s.Name, Suspected, "suspected of disturbing others about "+r.String()+": "+why+"; held to "+r.text(limit))
}

// caps writes the caps.
func (w *work) caps() {
	slices.SortFunc(w.next.Suspects, func(a, b Suspicion) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Resource, b.Resource))
	})
	for _, s := range w.next.Suspects {
		w.out.Caps = append(w.out.Caps, Cap{
			Pod: s.Pod, Name: s.Name, Resource: s.Resource, Phase: s.Phase, Limit: s.Limit,
			Correlation: unit.Fraction(s.Correlation), Part: unit.Fraction(s.Part),
			Reason: s.Phase.String() + ": " + s.Reason,
		})
	}
}
