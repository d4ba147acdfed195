// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package lent keeps the books on values of the whole node that are ours for a while: kernel parameters, lines of disks. What stood there before
// the first of our writes comes back when nobody of us wants the value any more, unless somebody else has changed it since. A value that somebody
// else sets is set again, ten times; then it is left to them until another one is wanted.
//
// Inputs are the books of the step before and the value as it stands; output the books for the next step, and what is to be written. It imports
// model/plan and the standard library only; never os, net, log, fmt or time.
package lent

import (
	"slices"

	"github.com/koord-rt/koord-rt/model/plan"
)

// Held is a value that we have changed. It survives a restart of the agent as JSON.
type Held[V comparable] struct {
	Knob string `json:"knob"`
	// Device is a disk's number, "" where the knob has one value.
	Device string `json:"device,omitempty"`
	// Ours is the value that we wrote, Original what stood there before.
	Ours     V `json:"ours"`
	Original V `json:"original"`
	// Former is what we wrote before, as long as that stands: the write of ours has failed, or a life has ended before it. Zero for none.
	Former V `json:"former,omitempty"`
	// Stood: ours was in force at the last step. Lost counts how often somebody else has changed it.
	Stood bool `json:"stood,omitempty"`
	Lost  int  `json:"lost,omitempty"`
}

// Holds reports whether what stands is as wanted.
type Holds[V comparable] func(want, stands V) bool

// patience is how often a value is set again that somebody else changes.
const patience = 10

// Left reports that the value is somebody else's by now.
func (h *Held[V]) Left() bool { return h.Lost > patience }

// Find is the entry of a knob and a disk, nil for none.
func Find[V comparable](list []Held[V], k plan.Knob, device string) *Held[V] {
	if i := slices.IndexFunc(list, func(h Held[V]) bool { return h.Knob == k.String() && h.Device == device }); i >= 0 {
		return &list[i]
	}
	return nil
}

// Same reports whether the same values are ours, with the same originals; how they fare does not count.
func Same[V comparable](a, b []Held[V]) bool {
	return slices.EqualFunc(a, b, func(x, y Held[V]) bool {
		return x.Knob == y.Knob && x.Device == y.Device && x.Ours == y.Ours && x.Original == y.Original
	})
}

// Standing is the value of ours that stands, zero for none.
func (h *Held[V]) Standing(now V, holds Holds[V]) (none V) {
	for _, v := range [...]V{h.Ours, h.Former} {
		if v != none && holds(v, now) {
			return v
		}
	}
	return none
}

// Want is the entry of a wanted value where now stands; was is that of the step before, nil for none, and original what stands if there is
// none. keep is false where nothing is ours: it has stood there without us.
func Want[V comparable](was *Held[V], k plan.Knob, device string, ours, original, now V, holds Holds[V]) (h Held[V], keep bool) {
	h = Held[V]{Knob: k.String(), Device: device, Ours: ours, Original: original, Stood: holds(ours, now)}
	if was == nil {
		return h, !h.Stood
	}
	h.Original = was.Original
	if !h.Stood {
		h.Former = was.Standing(now, holds)
	}
	if was.Ours == ours {
		h.Lost = was.Lost
		if was.Stood && !h.Stood {
			h.Lost++
		}
	}
	return h, true
}

// Back appends to next what is held and not in it: nobody wants that any more. A value of ours that still stands is given to back, and stays in
// the books until it is seen to be gone; so does one that cannot be read.
func Back[V comparable](held, next []Held[V], read func(plan.Knob, string) (V, bool), holds Holds[V], back func(plan.Knob, *Held[V])) []Held[V] {
	var none V
	for i := range held {
		h := &held[i]
		k, known := plan.ParseKnob(h.Knob)
		if !known || Find(next, k, h.Device) != nil {
			continue
		}
		switch now, ok := read(k, h.Device); {
		case !ok:
			next = append(next, *h)
		case h.Standing(now, holds) != none && !holds(h.Original, now):
			next = append(next, *h)
			back(k, h)
		}
	}
	return next
}
