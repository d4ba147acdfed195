// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/policy/burst"
	"github.com/koord-rt/koord-rt/policy/interference"
	"github.com/koord-rt/koord-rt/policy/memqos"
)

// Rooms are the containers that a loop has given more than their policies say, with its reason. The zero value is nobody.
type Rooms map[room]string

// room is one container and what it was given more of.
type room struct{ what, uid, container string }

// Give is who has more room after a step, and what has changed by it: who got room, and who gave it back. Further steps up
// or down are no events; the reason at the end is the last one. name is a pod's, by its UID.
func (r Rooms) Give(raises []burst.Raise, highs []memqos.High, name func(uid string) string) (Rooms, []Event) {
	next := make(Rooms, len(raises)+len(highs))
	for i := range raises {
		if raises[i].Container != "" {
			next[room{EventBurst, raises[i].Pod, raises[i].Container}] = raises[i].Reason
		}
	}
	for i := range highs {
		next[room{EventMemoryHigh, highs[i].Pod, highs[i].Container}] = highs[i].Reason
	}
	var out []Event
	for k, why := range next {
		if _, had := r[k]; !had {
			out = append(out, k.event("given", why, name))
		}
	}
	for k, why := range r {
		if _, has := next[k]; !has {
			out = append(out, k.event("taken back", "no longer needed or possible; it had been given because: "+why, name))
		}
	}
	slices.SortFunc(out, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Container, b.Container), cmp.Compare(a.What, b.What))
	})
	return next, out
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
