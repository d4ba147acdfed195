// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/policy/burst"
	"github.com/koord-rt/koord-rt/policy/interference"
	"github.com/koord-rt/koord-rt/policy/memqos"
	"github.com/koord-rt/koord-rt/policy/oomscore"
)

// Rooms are the containers that a loop has given more than their policies say, or less, with its reason. The zero value is nobody.
type Rooms map[room]string

// room is one container and what it was given more of, or less.
type room struct {
	what, uid, container string
	less                 bool
}

// Give is who has other room than its policies say after a step, and what has changed by it: who got more ("given", "taken back"), and
// who is held to less ("held", "let go"). Further steps up or down are no events; the reason at the end is the last one. name is a
// pod's, by its UID.
func (r Rooms) Give(raises []burst.Raise, highs []memqos.High, scores []oomscore.Score, name func(uid string) string) (Rooms, []Event) {
	next := make(Rooms, len(raises)+len(highs)+len(scores))
	for i := range raises {
		if raises[i].Container != "" {
			next[room{what: EventBurst, uid: raises[i].Pod, container: raises[i].Container}] = raises[i].Reason
		}
	}
	for i := range highs {
		next[room{EventMemoryHigh, highs[i].Pod, highs[i].Container, highs[i].Less}] = highs[i].Reason
	}
	for i := range scores {
		next[room{what: EventOOMScore, uid: scores[i].Pod, container: scores[i].Container}] = scores[i].Reason
	}
	var out []Event
	for k, why := range next {
		if _, had := r[k]; !had {
			out = append(out, k.event(k.begins(), why, name))
		}
	}
	for k, why := range r {
		if _, has := next[k]; !has {
			out = append(out, k.event(k.ends(), "no longer needed or possible; it had been "+k.begins()+" because: "+why, name))
		}
	}
	slices.SortFunc(out, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Container, b.Container), cmp.Compare(a.What, b.What), cmp.Compare(b.Outcome, a.Outcome))
	})
	return next, out
}

func (k room) begins() string {
	if k.less {
		return "held"
	}
	return "given"
}

func (k room) ends() string {
	if k.less {
		return "let go"
	}
	return "taken back"
}

func (k room) event(outcome, reason string, name func(uid string) string) Event {
	return Event{What: k.what, Outcome: outcome, By: k.what, UID: k.uid, Name: name(k.uid), Container: k.container, Reason: reason}
}

// Disturbances are the events of interference detection: who is disturbed, suspected, tried, released.
func Disturbances(list []interference.Event) []Event {
	out := make([]Event, 0, len(list))
	for _, e := range list {
		out = append(out, Event{What: EventInterference, By: EventInterference, UID: e.Pod, Name: e.Name, Reason: e.Text})
	}
	return out
}
