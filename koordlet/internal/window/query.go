// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package window

import (
	"slices"

	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

const (
	maxSlots = allBlocks * perBlock
	// fewSlots is a window for which less room is made: most are of a few seconds.
	fewSlots = 64
)

// gather is the samples of one query, oldest first: at most one per slot that a series keeps. Its room lies on the stack of who
// asks.
type gather struct {
	n           int
	first, last int64
	sum         float64
	values      []uint32
}

func (g *gather) add(slot int64, v uint32) {
	if g.n == 0 {
		g.first = slot
	}
	g.last = slot
	g.values[g.n] = v
	g.n++
	g.sum += decode(v)
}

// Query summarises the samples of (from, to], at most Horizon before the newest. The second that has just begun has no
// samples yet: a window that ends in it is taken to end with the one before, so that a window of 60 s holds 60 samples
// whenever it is asked for. It does not allocate.
func (m *Memory) Query(s sample.Subject, metric sample.Metric, from, to unit.Micros) sample.Summary {
	if !metric.Valid() || to <= from {
		return sample.Summary{}
	}
	if to-from <= (fewSlots-2)*unit.Second {
		return m.few(s, metric, from, to)
	}
	var room [maxSlots]uint32
	return m.summary(s, metric, from, to, &gather{values: room[:]})
}

// few is Query of a short window.
func (m *Memory) few(s sample.Subject, metric sample.Metric, from, to unit.Micros) sample.Summary {
	var room [fewSlots]uint32
	return m.summary(s, metric, from, to, &gather{values: room[:]})
}

// Last is Query's Last and To, at a part of its price; not ok without a sample.
func (m *Memory) Last(s sample.Subject, metric sample.Metric, from, to unit.Micros) (value float64, at unit.Micros, ok bool) {
	if !metric.Valid() || to <= from {
		return 0, 0, false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.subjects[s]
	if e == nil || e.at[metric] == 0 {
		return 0, 0, false
	}
	first, last := m.bounds(from, to)
	var slot int64
	var v uint32
	if i := e.at[metric] - 1; metric.Slow(s.Kind) {
		slot, v = e.slow[i].newest(first, last)
	} else {
		slot, v = e.fast[i].newest(first, last)
	}
	if v == 0 {
		return 0, 0, false
	}
	return decode(v), m.instant(slot), true
}

// summary gathers the samples of a window, for which g has room, and sums them up.
func (m *Memory) summary(s sample.Subject, metric sample.Metric, from, to unit.Micros, g *gather) sample.Summary {
	isSlow := metric.Slow(s.Kind)
	m.mu.RLock()
	first, last := m.bounds(from, to)
	if e := m.subjects[s]; e != nil && e.at[metric] != 0 {
		if i := e.at[metric] - 1; isSlow {
			e.slow[i].collect(first, last, g)
		} else {
			e.fast[i].collect(first, last, g)
		}
	}
	oldest, newest := m.instant(g.first), m.instant(g.last)
	m.mu.RUnlock()
	if g.n == 0 {
		return sample.Summary{}
	}
	out := sample.Summary{
		Avg: g.sum / float64(g.n), Last: decode(g.values[g.n-1]), Count: g.n,
		From: oldest, To: newest, Covered: m.covered(g.n, last-first+1, isSlow),
	}
	v := g.values[:g.n]
	slices.Sort(v) // the bits of positive floats are in the order of the floats
	rank := func(p int) float64 { return decode(v[sample.Rank(g.n, p)-1]) }
	out.P50, out.P90, out.P95, out.P99, out.Max = rank(50), rank(90), rank(95), rank(99), decode(v[g.n-1])
	return out
}

// bounds are the first and last slot of (from, to]; never none.
func (m *Memory) bounds(from, to unit.Micros) (first, last int64) {
	first, last = m.slot(from)+1, m.slot(to)
	if last == m.newest+1 {
		first, last = first-1, last-1
	}
	return min(first, last), last
}

// covered is the share of the expected samples that there are. A slow series comes every
// slowInterval, which is not known here: it is taken to have one per 10 s, as it has by default; any other one per Interval.
func (m *Memory) covered(n int, slots int64, isSlow bool) float64 {
	if isSlow {
		return min(float64(n)/float64((slots+perBlock-1)/perBlock), 1)
	}
	return min(float64(n)*m.opts.Interval.Seconds()/float64(slots), 1)
}
