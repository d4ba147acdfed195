// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package window is the bounded memory of the node agent: half an hour of samples per subject and metric.
//
// Inputs are batches of samples; output is the summary of any window up to 30 minutes. Seconds without a sample are gaps,
// never zeros. What is kept, per series:
//
//   - the last 5 minutes: every second, as float32;
//   - the 25 minutes before: blocks of 10 s in 7 bytes. A block keeps its largest and smallest sample to 0.1 % of the
//     largest, which second had a sample, and each other sample as the nearest of seven levels between the two; so it is
//     off by at most a twelfth of the spread inside its 10 s. All fields of a Summary are computed from these values and
//     thus off by no more; Count and Covered are exact;
//   - metrics that are Slow for their subject: one sample (the last) per 10 s, to 1e-6, for 30 minutes.
//
// A second-by-second series takes 2304 bytes, a slow one 768. Time is that of samples, monotonic microseconds, so a jump of
// the wall clock is invisible here; nothing reads a clock. It imports model/sample, model/unit and the standard library only.
package window

import (
	"fmt"
	"math"
	"sync"

	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Horizon is the longest window; what is older is gone.
const Horizon = 30 * unit.Minute

// Store is what the agent needs of a window. Memory is the one we have; another backend takes its place by these methods.
type Store interface {
	// Append takes the samples of one tick.
	Append(batch []sample.Sample)
	// Query summarises the samples of (from, to]. A window without samples has Count 0.
	Query(s sample.Subject, m sample.Metric, from, to unit.Micros) sample.Summary
	// Last is the newest of them and its time; not ok without one.
	Last(s sample.Subject, m sample.Metric, from, to unit.Micros) (value float64, at unit.Micros, ok bool)
	// Collect forgets who has not been measured for a while and returns how many subjects went.
	Collect(now unit.Micros) int
	// Full is an error while samples are refused for want of room.
	Full(now unit.Micros) error
}

// DefaultMaxBytes is what 500 containers in as many pods take with everything that there is to measure of them on any
// kernel (seven or eight fast series and up to 23 slow ones each: 30 MiB), and the node's own. A series is made with its first
// sample: 240 containers in 80 pods take 8 to 9 MiB.
const DefaultMaxBytes = 32 << 20

// Options of New; every field is optional.
type Options struct {
	// MaxBytes is the hard limit of what the series take; default DefaultMaxBytes.
	MaxBytes int
	// NodeReserve is how much of it only subjects of the node itself (Kind.OfNode) may take, so that a flood of containers
	// does not blind the loops; default 1 MiB, some 450 series, at most half of MaxBytes.
	NodeReserve int
	// Forget is how long after its last sample a subject is dropped; default 5 minutes.
	Forget unit.Micros
	// Interval is how often metrics that are not Slow are measured: for so long each of their samples stands in Covered; at least
	// and by default a second.
	Interval unit.Micros
}

// Stats counts what a Memory holds and what it did not take.
type Stats struct {
	Subjects, Series int
	// Bytes of the series, without the index.
	Bytes int
	// Samples that were not taken: Refused had no room for their series, Invalid no valid metric, subject or value
	// (negative, NaN, beyond float32), Late were older than the fine part of their series.
	Refused, Invalid, Late uint64
	// RefusedAt is the time of the newest sample that had no room.
	RefusedAt unit.Micros
}

// Memory is a Store in memory. One goroutine calls Append and Collect, any number call Query and Stats at the same time.
type Memory struct {
	opts Options

	mu sync.RWMutex
	// origin is the time of slot 0, an hour before the first sample: slots are centred on the first sample's phase, so
	// that a ticker's jitter puts no two ticks into one second and leaves none empty.
	origin unit.Micros
	// newest is the last slot that any sample reached; 0 before the first.
	newest   int64
	subjects map[sample.Subject]*entry
	stats    Stats
}

// New makes an empty store.
func New(o Options) *Memory {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.NodeReserve <= 0 {
		o.NodeReserve = 1 << 20
	}
	o.NodeReserve = min(o.NodeReserve, o.MaxBytes/2)
	if o.Forget <= 0 {
		o.Forget = 5 * unit.Minute
	}
	o.Interval = max(o.Interval, unit.Second)
	return &Memory{opts: o, subjects: map[sample.Subject]*entry{}}
}

// entry is one subject with its series.
type entry struct {
	newest int64 // last slot with a sample of any metric
	// at is 1 + the index of the metric's series in fast or slow, 0 when there is none.
	at   [sample.NumMetrics]uint8
	fast []*fast
	slow []*slow
}

const (
	perBlock = 10 // slots of one second in a block
	// originLead keeps slots and blocks positive: block 0 stands for "none".
	originLead = 60 * unit.Minute
)

// slot is the number of the second around t.
func (m *Memory) slot(t unit.Micros) int64 {
	if t < m.origin {
		return 0
	}
	return int64((t - m.origin + unit.Second/2) / unit.Second)
}

func (m *Memory) instant(slot int64) unit.Micros {
	return m.origin + unit.Micros(slot)*unit.Second
}

// Append takes the samples of one tick. Two samples of a series in one second: the later in the batch stays. It allocates
// only for new series; samples of one subject beside each other are found faster.
func (m *Memory) Append(batch []sample.Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newest == 0 && len(batch) > 0 {
		m.origin = batch[0].At - originLead
	}
	var (
		e    *entry
		last sample.Subject
	)
	for i := range batch {
		s := &batch[i]
		v, ok := encode(s.Value)
		if !ok || !s.Metric.Valid() || s.Subject.Kind == 0 {
			m.stats.Invalid++
			continue
		}
		if e == nil || s.Subject != last {
			last = s.Subject
			e = m.subjects[last]
		}
		slot := m.slot(s.At)
		if slot < perBlock {
			m.stats.Late++
			continue
		}
		if e == nil || e.at[s.Metric] == 0 {
			if e = m.grow(e, s); e == nil {
				m.stats.Refused++
				m.stats.RefusedAt = s.At
				continue
			}
		}
		if !e.put(s.Metric, s.Metric.Slow(last.Kind), slot, v) {
			m.stats.Late++
			continue
		}
		e.newest, m.newest = max(e.newest, slot), max(m.newest, slot)
	}
}

// encode gives a value as the bits of a float32 plus one, so that 0 stands for "no sample" and larger values are larger.
func encode(v float64) (uint32, bool) {
	if !(v >= 0 && v <= math.MaxFloat32) {
		return 0, false
	}
	return math.Float32bits(float32(math.Abs(v))) + 1, true // Abs: no negative zero
}

func decode(b uint32) float64 { return float64(math.Float32frombits(b - 1)) }

// grow makes the series of a sample, and its subject's entry when e is nil. Nil when there is no room.
func (m *Memory) grow(e *entry, s *sample.Sample) *entry {
	isSlow, size := s.Metric.Slow(s.Subject.Kind), fastBytes
	if isSlow {
		size = slowBytes
	}
	room := m.opts.MaxBytes - m.stats.Bytes
	if !s.Subject.Kind.OfNode() {
		room -= m.opts.NodeReserve
	}
	if room < size {
		return nil
	}
	if e == nil {
		e = &entry{}
		m.subjects[s.Subject] = e
		m.stats.Subjects++
	}
	m.stats.Series++
	m.stats.Bytes += size
	if isSlow {
		e.slow = append(e.slow, &slow{})
		e.at[s.Metric] = uint8(len(e.slow))
		return e
	}
	e.fast = append(e.fast, &fast{})
	e.at[s.Metric] = uint8(len(e.fast))
	return e
}

func (e *entry) put(metric sample.Metric, isSlow bool, slot int64, v uint32) bool {
	i := e.at[metric] - 1
	if isSlow {
		return e.slow[i].put(slot, v)
	}
	return e.fast[i].put(slot, v)
}

// Collect forgets the subjects without a sample for Options.Forget before now. The agent calls it every minute or so.
func (m *Memory) Collect(now unit.Micros) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	oldest := m.slot(now - m.opts.Forget)
	gone := 0
	for s, e := range m.subjects { // the order changes nothing
		if e.newest >= oldest {
			continue
		}
		gone++
		m.stats.Subjects--
		m.stats.Series -= len(e.fast) + len(e.slow)
		m.stats.Bytes -= len(e.fast)*fastBytes + len(e.slow)*slowBytes
		delete(m.subjects, s)
	}
	return gone
}

// fullFor is how long after a refusal the window still counts as full: what is measured less often is refused less often.
const fullFor = unit.Minute

// Full is an error while samples are refused for want of room: who has come last is not measured, or not in full.
func (m *Memory) Full(now unit.Micros) error {
	s := m.Stats()
	if s.Refused == 0 || now-s.RefusedAt > fullFor {
		return nil
	}
	return fmt.Errorf("no room for more series: %d of %d MiB are taken by those of %d pods, containers and others; who came last is not measured, or not in full",
		s.Bytes>>20, m.opts.MaxBytes>>20, s.Subjects)
}

// Stats of the store.
func (m *Memory) Stats() Stats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.stats
}
