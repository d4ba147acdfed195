// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sample

import "github.com/koord-rt/koord-rt/model/unit"

// Delta is the growth of a counter over a span of time. Over is always positive.
type Delta struct {
	Count uint64
	Over  unit.Micros
}

// PerSecond is Count / Over in 1/s: bytes per second, or ns of CPU time per second, which are cores once divided by 1e9.
func (d Delta) PerSecond() float64 { return float64(d.Count) / d.Over.Seconds() }

// Rate turns the readings of one counter into deltas. The zero value is ready. It yields nothing whenever two readings do
// not bound a true growth:
//
//   - the first reading;
//   - a value below the last one: the counter was reset (cgroup made anew) or has wrapped, and how often is unknown;
//   - the same time again: there is no span. The earlier reading stays;
//   - an earlier time: the readings are out of order or the clock went back.
//
// Except for the same time, the reading becomes the start of the next delta.
type Rate struct {
	value uint64
	at    unit.Micros
	known bool
}

// Next takes a reading.
func (r *Rate) Next(value uint64, at unit.Micros) (d Delta, ok bool) {
	last := *r
	if last.known && at == last.at {
		return Delta{}, false
	}
	*r = Rate{value: value, at: at, known: true}
	if !last.known || at < last.at || value < last.value {
		return Delta{}, false
	}
	return Delta{Count: value - last.value, Over: at - last.at}, true
}

// Share is part / whole of two deltas of one interval as a ratio 0..1 (throttled periods of all periods). Nothing is known
// without a whole; a part above the whole (the two files were not read at once) is 1.
func Share(part, whole Delta) (ratio float64, ok bool) {
	if whole.Count == 0 {
		return 0, false
	}
	return min(float64(part.Count)/float64(whole.Count), 1), true
}
