// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package window

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

var _ Store = (*Memory)(nil)

// at is second s of a clock whose ticks fall somewhere within the second.
func at(s int) unit.Micros { return unit.Micros(123456789) + unit.Micros(s)*unit.Second }

func cpu(id string, s int, v float64) sample.Sample {
	return sample.Sample{Subject: sample.OfContainer(id), Metric: sample.CPUUsage, Value: v, At: at(s)}
}

func TestQueryOfWorkedWindows(t *testing.T) {
	t.Parallel()
	m := New(Options{})
	c := sample.OfContainer("c")
	for s := 1; s <= 100; s++ {
		m.Append([]sample.Sample{cpu("c", s, float64(s))})
	}
	sum := func(from, to, n int, avg float64, ranks ...float64) sample.Summary {
		return sample.Summary{
			Avg: avg, P50: ranks[0], P90: ranks[1], P95: ranks[2], P99: ranks[3], Max: float64(to), Last: float64(to),
			Count: n, From: at(from), To: at(to), Covered: 1,
		}
	}
	partly := sum(1, 100, 100, 50.5, 50, 90, 95, 99)
	partly.Covered = 0.5
	for name, c := range map[string]struct {
		from, to unit.Micros
		want     sample.Summary
	}{
		"hundred seconds":              {at(0), at(100), sum(1, 100, 100, 50.5, 50, 90, 95, 99)},
		"the last ten":                 {at(90), at(100), sum(91, 100, 10, 95.5, 95, 99, 100, 100)},
		"one second":                   {at(41), at(42), sum(42, 42, 1, 42, 42, 42, 42, 42)},
		"less than a second":           {at(41) + unit.Second/4, at(42), sum(42, 42, 1, 42, 42, 42, 42, 42)},
		"asked just before the tick":   {at(41) - unit.Millisecond, at(101) - unit.Millisecond, sum(41, 100, 60, 70.5, 70, 94, 97, 100)},
		"asked just after the tick":    {at(40) + unit.Millisecond, at(100) + unit.Millisecond, sum(41, 100, 60, 70.5, 70, 94, 97, 100)},
		"asked after half a second":    {at(40) + unit.Second*6/10, at(100) + unit.Second*6/10, sum(41, 100, 60, 70.5, 70, 94, 97, 100)},
		"longer than there is history": {at(-100), at(100), partly},
		"before the first":             {at(-100), at(0), sample.Summary{}},
		"after the last":               {at(100), at(200), sample.Summary{}},
		"turned round":                 {at(90), at(80), sample.Summary{}},
		"no length":                    {at(90), at(90), sample.Summary{}},
	} {
		if diff := cmp.Diff(c.want, m.Query(sample.OfContainer("c"), sample.CPUUsage, c.from, c.to)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	for name, got := range map[string]sample.Summary{
		"other metric":  m.Query(c, sample.MemoryUsage, at(0), at(100)),
		"other subject": m.Query(sample.OfPod("c"), sample.CPUUsage, at(0), at(100)),
		"no metric":     m.Query(c, 0, at(0), at(100)),
		"bad metric":    m.Query(c, 250, at(0), at(100)),
	} {
		if got.Known() {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestGapsAreNotZeros(t *testing.T) {
	t.Parallel()
	m := New(Options{})
	for _, s := range []int{1, 2, 7, 8} {
		m.Append([]sample.Sample{cpu("c", s, 4)})
	}
	// The node goes on while the container is not measured.
	m.Append([]sample.Sample{{Subject: sample.OfNode(), Metric: sample.CPUUsage, Value: 1, At: at(10)}})
	want := sample.Summary{Avg: 4, P50: 4, P90: 4, P95: 4, P99: 4, Max: 4, Last: 4, Count: 4, From: at(1), To: at(8), Covered: 0.4}
	if diff := cmp.Diff(want, m.Query(sample.OfContainer("c"), sample.CPUUsage, at(0), at(10))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// Old blocks keep their gaps.
	m.Append([]sample.Sample{cpu("c", 1000, 1)})
	if got := m.Query(sample.OfContainer("c"), sample.CPUUsage, at(0), at(10)); got.Count != 4 || got.Covered != 0.4 || math.Abs(got.Avg-4) > 0.004 {
		t.Errorf("after packing: %+v", got)
	}
}

func TestJitterLosesNoTick(t *testing.T) {
	t.Parallel()
	m := New(Options{})
	for s := 1; s <= 60; s++ {
		jitter := unit.Micros(s*7919%800-400) * unit.Millisecond // within 0.4 s
		x := cpu("c", s, 1)
		x.At += jitter * unit.Micros(min(s-1, 1)) // the first one sets the phase
		m.Append([]sample.Sample{x})
	}
	if got := m.Query(sample.OfContainer("c"), sample.CPUUsage, at(0), at(60)); got.Count != 60 || got.Covered != 1 {
		t.Errorf("%+v", got)
	}
}

func TestSlowMetrics(t *testing.T) {
	t.Parallel()
	m := New(Options{})
	pod := sample.OfPod("p")
	for s := 5; s <= 1995; s += 10 {
		m.Append([]sample.Sample{{Subject: pod, Metric: sample.PSICPUSome, Value: float64(s), At: at(s)}})
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 2e-6*b }
	got := m.Query(pod, sample.PSICPUSome, at(1945), at(1995))
	if got.Count != 5 || got.From != at(1955) || got.To != at(1995) || got.Covered != 1 || !near(got.Last, 1995) || !near(got.Avg, 1975) || !near(got.P50, 1975) {
		t.Errorf("50 s: %+v", got)
	}
	got = m.Query(pod, sample.PSICPUSome, at(195), at(1995))
	if got.Count != 180 || got.Covered != 1 || got.From != at(205) {
		t.Errorf("30 min: %+v", got)
	}
	if got = m.Query(pod, sample.PSICPUSome, at(1990), at(1994)); got.Known() {
		t.Errorf("between two samples: %+v", got)
	}
	// The later second of a block wins, whatever the order; a missing block is a gap.
	m.Append([]sample.Sample{
		{Subject: pod, Metric: sample.PSICPUSome, Value: 7, At: at(2018)},
		{Subject: pod, Metric: sample.PSICPUSome, Value: 6, At: at(2015)},
	})
	got = m.Query(pod, sample.PSICPUSome, at(1989), at(2019))
	if got.Count != 2 || !near(got.Last, 7) || got.To != at(2018) || math.Abs(got.Covered-2.0/3) > 1e-9 {
		t.Errorf("with a gap: %+v", got)
	}
	m.Append([]sample.Sample{{Subject: pod, Metric: sample.PSICPUSome, Value: 1, At: at(9000)}})
	if got = m.Query(pod, sample.PSICPUSome, at(7200), at(9000)); got.Count != 1 {
		t.Errorf("after a long gap: %+v", got)
	}
	m.Append([]sample.Sample{{Subject: pod, Metric: sample.PSICPUSome, Value: 1, At: at(7000)}})
	if m.Stats().Late != 1 {
		t.Errorf("a sample of before the horizon: %+v", m.Stats())
	}
	// The same metric of the node comes every second and is kept so.
	for s := 9001; s <= 9060; s++ {
		m.Append([]sample.Sample{{Subject: sample.OfNode(), Metric: sample.PSICPUSome, Value: 1, At: at(s)}})
	}
	if got = m.Query(sample.OfNode(), sample.PSICPUSome, at(9000), at(9060)); got.Count != 60 {
		t.Errorf("node: %+v", got)
	}
}

// Last is the last sample of a Query, of fast and slow series, in the fine part and where it is packed, with gaps and without.
func TestLast(t *testing.T) {
	t.Parallel()
	m := New(Options{})
	c, p := sample.OfContainer("c"), sample.OfPod("p")
	for s := 1; s <= 1500; s++ {
		if s%50 < 40 {
			m.Append([]sample.Sample{cpu("c", s, float64(s%97))})
		}
		if s%10 == 5 && s%70 != 5 {
			m.Append([]sample.Sample{{Subject: p, Metric: sample.PSICPUSome, Value: float64(s), At: at(s)}})
		}
	}
	for to := 0; to <= 1510; to += 3 {
		for _, length := range []int{1, 2, 5, 20, 61, 62, 63, 64, 65, 300, 1800} {
			for s, metric := range map[sample.Subject]sample.Metric{c: sample.CPUUsage, p: sample.PSICPUSome} {
				from, to := at(to-length), at(to)
				want := m.Query(s, metric, from, to)
				got, when, ok := m.Last(s, metric, from, to)
				if ok != want.Known() || got != want.Last || when != want.To {
					t.Fatalf("%s (%d, %d]: %v at %d, %v; want %v at %d, %v", s, from, to, got, when, ok, want.Last, want.To, want.Known())
				}
			}
		}
	}
	for name, ok := range map[string]bool{
		"another metric":  known(m.Last(c, sample.MemoryUsage, at(0), at(1500))),
		"another subject": known(m.Last(sample.OfPod("c"), sample.CPUUsage, at(0), at(1500))),
		"no metric":       known(m.Last(c, 0, at(0), at(1500))),
		"turned round":    known(m.Last(c, sample.CPUUsage, at(1500), at(0))),
	} {
		if ok {
			t.Errorf("%s has a sample", name)
		}
	}
}

func known(_ float64, _ unit.Micros, ok bool) bool { return ok }

func TestWhatIsNotTaken(t *testing.T) {
	t.Parallel()
	m := New(Options{})
	node := sample.OfNode()
	m.Append(nil)
	m.Append([]sample.Sample{cpu("c", 1000, 1), cpu("c", 1001, math.Copysign(0, -1))})
	for name, s := range map[string]sample.Sample{
		"negative":     {Subject: node, Metric: sample.CPUUsage, Value: -1, At: at(1001)},
		"NaN":          {Subject: node, Metric: sample.CPUUsage, Value: math.NaN(), At: at(1001)},
		"infinite":     {Subject: node, Metric: sample.CPUUsage, Value: math.Inf(1), At: at(1001)},
		"too large":    {Subject: node, Metric: sample.CPUUsage, Value: 1e300, At: at(1001)},
		"no metric":    {Subject: node, Value: 1, At: at(1001)},
		"no subject":   {Metric: sample.CPUUsage, Value: 1, At: at(1001)},
		"wrong metric": {Subject: node, Metric: 251, Value: 1, At: at(1001)},
	} {
		before := m.Stats()
		m.Append([]sample.Sample{s})
		before.Invalid++
		if diff := cmp.Diff(before, m.Stats()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	m.Append([]sample.Sample{cpu("c", 500, 1)}) // in the coarse part
	m.Append([]sample.Sample{cpu("c", -9000, 1)})
	m.Append([]sample.Sample{cpu("c", 990, 1)}) // late, but fine
	if got := m.Stats(); got.Late != 2 || got.Series != 1 || got.Subjects != 1 || got.Bytes != fastBytes {
		t.Errorf("%+v", got)
	}
	if got := m.Query(sample.OfContainer("c"), sample.CPUUsage, at(980), at(1001)); got.Count != 3 || got.Last != 0 || math.Signbit(got.Last) {
		t.Errorf("%+v", got)
	}
}

func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	m := New(Options{MaxBytes: 100 * fastBytes, NodeReserve: 10 * fastBytes})
	for i := range 500 {
		m.Append([]sample.Sample{cpu(fmt.Sprint(i), 1, 1)})
	}
	if got := m.Stats(); got.Series != 90 || got.Refused != 410 {
		t.Fatalf("containers: %+v", got)
	}
	for metric := sample.Metric(1); metric <= 20; metric++ {
		m.Append([]sample.Sample{{Subject: sample.OfNode(), Metric: metric, Value: 1, At: at(1)}})
	}
	if got := m.Stats(); got.Series != 100 || got.Refused != 420 {
		t.Fatalf("node: %+v", got)
	}
	if err := m.Full(at(2)); err == nil || !strings.Contains(err.Error(), "91 pods, containers and others") {
		t.Errorf("nobody says that it is full: %v", err)
	}
	if err := m.Full(at(100)); err != nil {
		t.Errorf("full for ever: %v", err)
	}
	// Series that exist go on, and room comes back when subjects go.
	m.Append([]sample.Sample{cpu("0", 2, 1), cpu("499", 2, 1)})
	if got := m.Stats(); got.Series != 100 || got.Refused != 421 {
		t.Fatalf("known and new: %+v", got)
	}
	if gone := m.Collect(at(1 + 300)); gone != 0 {
		t.Errorf("%d went at the limit", gone)
	}
	if gone := m.Collect(at(2 + 300)); gone != 90 { // all of second 1: 89 containers and the node
		t.Errorf("%d went, want 90", gone)
	}
	m.Append([]sample.Sample{cpu("499", 303, 1)})
	if diff := cmp.Diff(Stats{Subjects: 2, Series: 2, Bytes: 2 * fastBytes, Refused: 421, RefusedAt: at(2)}, m.Stats()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestWallClockAndPausesDoNotMatter(t *testing.T) {
	t.Parallel()
	m := New(Options{})
	for s := 1; s <= 2000; s++ {
		m.Append([]sample.Sample{cpu("c", s, 1)})
	}
	const day = 86400 // the agent was stopped, or the machine asleep
	m.Append([]sample.Sample{cpu("c", 2000+day, 2)})
	got := m.Query(sample.OfContainer("c"), sample.CPUUsage, at(2000+day-1800), at(2000+day))
	if got.Count != 1 || got.Avg != 2 || got.Max != 2 {
		t.Errorf("%+v", got)
	}
}

// budget is the node of the issue: 240 containers, 80 pods, the node; 8 series each.
func budget(second int, batch []sample.Sample) []sample.Sample {
	metrics := []sample.Metric{
		sample.CPUUsage, sample.MemoryUsage, sample.MemoryWithPageCache, sample.MemoryWithHotPages, sample.CPUThrottled, sample.CPUPeriods,
		sample.CPULimit, sample.CPURequest,
	}
	add := func(s sample.Subject, n int) {
		for i, metric := range metrics {
			batch = append(batch, sample.Sample{Subject: s, Metric: metric, At: at(second), Value: float64((n*31+i*17+second*7)%1000) / 7})
		}
	}
	add(sample.OfNode(), 0)
	for i := range 80 {
		add(podNames[i], i)
	}
	for i := range 240 {
		add(containerNames[i], i)
	}
	return batch
}

var podNames, containerNames = names(80, sample.OfPod), names(240, sample.OfContainer)

func names(n int, of func(string) sample.Subject) []sample.Subject {
	out := make([]sample.Subject, n)
	for i := range out {
		out[i] = of(fmt.Sprintf("0123456789abcdef-%d", i))
	}
	return out
}

// TestMemoryBudget runs alone, because it looks at the heap.
func TestMemoryBudget(t *testing.T) {
	var batch []sample.Sample
	batch = budget(0, batch)
	before := heap()
	m := New(Options{})
	for s := range 400 {
		batch = budget(s, batch[:0])
		m.Append(batch)
	}
	used := heap() - before
	runtime.KeepAlive(m)
	if stats := m.Stats(); stats.Series != 321*8 || stats.Bytes > 6<<20 {
		t.Errorf("%+v", stats)
	}
	if used > 6<<20 {
		t.Errorf("%d bytes in use, want at most 6 MiB", used)
	}
	t.Logf("%.2f MiB in use", float64(used)/(1<<20))
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func TestAppendAndQueryDoNotAllocate(t *testing.T) {
	m := New(Options{})
	second := 0
	batch := budget(second, nil)
	m.Append(batch)
	if n := testing.AllocsPerRun(50, func() {
		second++
		for i := range batch {
			batch[i].At = at(second)
		}
		m.Append(batch)
	}); n != 0 {
		t.Errorf("Append allocates %v times", n)
	}
	if n := testing.AllocsPerRun(50, func() {
		m.Query(podNames[3], sample.CPUUsage, at(second-60), at(second))
		m.Query(podNames[3], sample.CPUUsage, at(second-1800), at(second))
		m.Last(podNames[3], sample.CPUUsage, at(second-2), at(second))
	}); n != 0 {
		t.Errorf("Query allocates %v times", n)
	}
}

// TestOneWriterManyReaders is for the race detector; readers see whole ticks only.
func TestOneWriterManyReaders(t *testing.T) {
	t.Parallel()
	m := New(Options{Forget: unit.Minute})
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				a := m.Query(sample.OfContainer("a"), sample.CPUUsage, at(0), at(2000))
				if a.Count > 0 && a.Avg != a.Max {
					t.Errorf("half a tick: %+v", a)
					return
				}
				m.Stats()
			}
		})
	}
	for s := range 1500 {
		m.Append([]sample.Sample{cpu("a", s, 1), cpu("b", s, 1)})
		m.Collect(at(s))
	}
	close(done)
	readers.Wait()
}
