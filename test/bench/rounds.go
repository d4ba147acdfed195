// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// shares are, by event, the parts of each round's calls that were within handlerGoal, 0 to 1. A machine that others disturb has rounds in which
// nobody keeps the goal: who is compared in one of them is compared with what else was measured in it.
type shares map[string][]float64

// ofHistograms adds one round of koord-nri's.
func (s shares) ofHistograms(round histograms) {
	for _, e := range handlerEvents {
		if h := round[e.String()]; h.count > 0 {
			s[e.String()] = append(s[e.String()], h.within(handlerGoal))
		}
	}
}

// ofSamples adds one round of bare's.
func (s shares) ofSamples(round map[string]sample) {
	for event, took := range round {
		s[event] = append(s[event], took.within(handlerGoal))
	}
}

// line shows the rounds in their order.
func (s shares) line(event string) string {
	texts := make([]string, len(s[event]))
	for i, v := range s[event] {
		texts[i] = fmt.Sprintf("%.1f", 100*v)
	}
	return strings.Join(texts, ", ") + " %"
}

// tellRounds shows, round by round, the events in which the kernel is written to, and what the writes alone took then.
func tellRounds(r *report, ours, bare map[int]*measured) {
	for _, e := range []struct {
		event metrics.Event
		bare  []string
	}{
		{metrics.EventStartContainer, []string{"StartContainer/LS"}},
		{metrics.EventUpdateContainer, []string{"UpdateContainer/LS", "UpdateContainer/LS/decided"}},
	} {
		for _, c := range ran(ours) {
			r.tell(fmt.Sprintf("inside %s at %d, ≤ 200 µs by round", e.event, c), "%s", ours[c].rounds.line(e.event.String()))
			for _, name := range e.bare {
				r.tell(fmt.Sprintf("bare %s at %d, ≤ 200 µs by round", name, c), "%s", bare[c].rounds.line(name))
			}
		}
	}
}
