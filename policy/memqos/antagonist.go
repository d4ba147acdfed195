// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package memqos

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Antagonist is a BE pod that interference detection holds to Cap, because its memory disturbs others.
type Antagonist struct {
	Pod string // UID
	Cap unit.Bytes
}

// antagonists holds their containers by memory.high:
//
//	target = cap × used / Σ used of the pod's containers, as they were when the cap was told
//	high   = max(target, used − what a tick takes, used − reclaimable, memory.low, 16 MiB), only falling until the cap is raised
//
// The kernel reclaims within the write of memory.high, so it is lowered by what a tick takes. Memory that cannot be given back is not asked
// for: below it the container would stand still, and nobody would have more.
//
// Example: cap 8 GiB, containers with 9 and 1 GiB: 7.2 and 0.8 GiB. Of the 9 GiB 8 are anonymous: 8 GiB, and not more.
func (w *work) antagonists() {
	tick := max(w.in.Capacity/tickPart, leastTick)
	for i := range w.next {
		c, s := &w.in.Containers[i], &w.next[i]
		at := slices.IndexFunc(w.in.Antagonists, func(a Antagonist) bool { return a.Pod == c.Pod })
		if at < 0 || c.QoS != protocol.QoSBE || !w.in.CanHigh || w.in.Antagonists[at].Cap <= 0 {
			s.Cap, s.Target, s.Told = 0, 0, 0
			continue
		}
		if !c.Used.OK {
			continue
		}
		told := w.in.Antagonists[at].Cap
		raised := told > s.Told
		if told != s.Told {
			target, ok := w.share(i, told)
			if !ok {
				continue
			}
			s.Told, s.Target = told, target
		}
		least := max(c.Low, keepLeast, c.Used.V-tick)
		if c.Reclaimable.OK {
			least = max(least, c.Used.V-c.Reclaimable.V)
		}
		if most := max(s.Target, least).PageDown(); s.Cap == 0 || raised || most < s.Cap {
			s.Cap = most
		}
	}
}

// share is a container's part of what its pod is held to; not ok while not all of the pod is measured.
func (w *work) share(at int, told unit.Bytes) (unit.Bytes, bool) {
	var all unit.Bytes
	for i := range w.in.Containers {
		c := &w.in.Containers[i]
		if c.Pod != w.in.Containers[at].Pod {
			continue
		}
		if !c.Used.OK {
			return 0, false
		}
		all += c.Used.V
	}
	if all <= 0 {
		return 0, false
	}
	return unit.Bytes(float64(told) * float64(w.in.Containers[at].Used.V) / float64(all)), true
}

func capWhy(told unit.Bytes) string {
	return "it disturbs others about memory: its pod is held to " + figure.Bytes(told)
}
