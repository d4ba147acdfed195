// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"
	"iter"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// batch is how many samples the sink gets at once.
const batch = 1024

// tick is one scan: whom it is about, what has been read in it so far, and where samples go. One value is used again and again.
type tick struct {
	usage *usage.FS
	clock func() unit.Micros
	buf   *root.Buffer
	// apart: CPU time and throttling are two files (v1).
	apart bool

	// n counts ticks; slow is how many of them make a slow interval.
	n, slow uint64
	phases  uint64

	// watch: the CPU pressure of pods is read in each tick.
	watch bool
	// told: somebody has said whom to follow, so that what nobody has is nobody's.
	told       bool
	pods       []*podEntry
	parents    []*entry // directories of many pods
	apps       []*entry
	bestEffort *usage.Cgroup // nil when it is not known
	machine    machineReading

	sink   func([]sample.Sample)
	out    []sample.Sample
	report Report
}

// figure is a number that may not be known.
type figure struct {
	value float64
	known bool
}

func (t *tick) begin(sink func([]sample.Sample)) {
	t.n++
	t.sink, t.out, t.report = sink, t.out[:0], Report{}
}

// due reports whether a slow entry's turn is in this tick.
func (t *tick) due(e *entry) bool { return (t.n+e.phase)%t.slow == 0 }

// entries are all followed cgroups: each pod, then its containers, then the host applications.
func (t *tick) entries() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, p := range t.pods {
			if !yield(&p.entry) {
				return
			}
			for _, c := range p.containers {
				if !yield(c) {
					return
				}
			}
		}
		for _, a := range t.apps {
			if !yield(a) {
				return
			}
		}
	}
}

// emit takes a sample. Differences of files that were not read at one moment may be a little below zero.
func (t *tick) emit(s sample.Subject, m sample.Metric, value float64, at unit.Micros) {
	t.out = append(t.out, sample.Sample{Subject: s, Metric: m, Value: max(value, 0), At: at})
	if len(t.out) == cap(t.out) {
		t.flush()
	}
}

// emitRate emits the growth per second of a counter, times scale.
func (t *tick) emitRate(s sample.Subject, m sample.Metric, r *sample.Rate, counter uint64, scale float64, at unit.Micros) {
	if d, ok := r.Next(counter, at); ok {
		t.emit(s, m, d.PerSecond()*scale, at)
	}
}

func (t *tick) flush() {
	if len(t.out) > 0 {
		t.report.Samples += len(t.out)
		t.sink(t.out)
		t.out = t.out[:0]
	}
}

func (t *tick) fail(err error) {
	t.report.Failed++
	if t.report.Err == nil {
		t.report.Err = err
	}
}

// table handles the error of a slow table: a file that is not there is nothing to tell.
func (t *tick) table(err error) bool {
	if err != nil && !errors.Is(err, usage.ErrNoFile) {
		t.fail(err)
	}
	return err == nil
}

// emitUsage emits what a reading says of CPU and memory.
func (t *tick) emitUsage(e *entry) {
	if e.rated {
		t.emit(e.subject, sample.CPUUsage, e.cores, e.at)
	}
	if e.counters.Have.Has(usage.CPUThrottle) {
		t.emitThrottled(e)
	}
	if e.counters.Have.Has(usage.MemoryDetail) {
		t.emit(e.subject, sample.MemoryUsage, float64(e.counters.Memory.WithoutPageCache()), e.at)
	}
}

// emitThrottled: ratio = Δnr_throttled / Δnr_periods. Without a period in the interval, because there is no quota or nobody ran, there
// is nothing to say. The time is told only where there is some: most have none.
func (t *tick) emitThrottled(e *entry) {
	periods, ok1 := e.periods.Next(e.counters.Periods, e.at)
	throttled, ok2 := e.throttled.Next(e.counters.Throttled, e.at)
	e.limited = ok2 && throttled.Count > 0
	if stopped, ok := e.stopped.Next(e.counters.ThrottledNS, e.at); ok && stopped.Count > 0 {
		t.emit(e.subject, sample.CPUThrottledTime, stopped.PerSecond()/1000, e.at)
	}
	if !ok1 || !ok2 || periods.Count == 0 {
		return
	}
	t.emit(e.subject, sample.CPUPeriods, float64(periods.Count), e.at)
	if ratio, ok := sample.Share(throttled, periods); ok {
		t.emit(e.subject, sample.CPUThrottled, ratio, e.at)
	}
}
