// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommend_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
	"github.com/koord-rt/koord-rt/policy/recommend"
)

const (
	minute = predict.Wall(unit.Minute)
	hour   = 60 * minute
	day    = 24 * hour
	start  = predict.Wall(1_760_000_000_000_000)
	gi     = 1 << 30
)

func sample(name string, cores, bytes float64) recommend.Sample {
	return recommend.Sample{Container: name, Usage: predict.Usage{CPU: unit.Got(cores), Memory: unit.Got(bytes)}}
}

// one learns n measurements of one container, a minute apart, and returns the time of the last.
func one(m *recommend.Model, from predict.Wall, n int, cores, bytes float64) predict.Wall {
	now := from
	for i := range n {
		now = from + predict.Wall(i)*minute
		m.Learn(now, []recommend.Sample{sample("app", cores, bytes)})
	}
	return now
}

func advice(t *testing.T, m *recommend.Model, name string) recommend.Advice {
	t.Helper()
	for _, a := range m.Advice() {
		if a.Container == name {
			return a
		}
	}
	t.Fatalf("no advice for %s in %+v", name, m.Advice())
	return recommend.Advice{}
}

// amountsOf are CPU of lower bound, target, upper bound in milli-cores, and memory likewise in MiB, rounded.
func amountsOf(a recommend.Advice) [6]int64 {
	mi := func(b unit.Bytes) int64 { return int64(math.Round(float64(b) / (1 << 20))) }
	return [6]int64{int64(a.Lower.CPU), int64(a.Target.CPU), int64(a.Upper.CPU), mi(a.Lower.Memory), mi(a.Target.Memory), mi(a.Upper.Memory)}
}

// TestWorkedExamples: the buckets of policy/predict end at 0.5 · (1.05ⁿ − 1) cores and 100 · (1.05ⁿ − 1) MiB. By hand:
//
//	1 core is in the bucket that ends at 0.5 · (1.05²³ − 1) = 1.035762, 4 cores at 0.5 · (1.05⁴⁶ − 1) = 4.217129
//	1 GiB in that which ends at 100 · (1.05⁵⁰ − 1) = 1046.740 MiB, 2 GiB at 100 · (1.05⁶³ − 1) = 2062.349 MiB
func TestWorkedExamples(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		learn func(*recommend.Model)
		want  [6]int64
	}{
		// Confidence 1439/1440: 1191.126 · (0.998001, 1, 2.000695), 1203.751 · the same.
		"a day of one core": {func(m *recommend.Model) { one(m, start, 1440, 1, gi) }, [6]int64{1189, 1192, 2384, 1201, 1204, 2408}},
		// Confidence 60/1440: 1191.126 · (1.024⁻², 1, 25), 1203.751 · the same.
		"an hour": {func(m *recommend.Model) { one(m, start, 61, 1, gi) }, [6]int64{1136, 1192, 29779, 1148, 1204, 30094}},
		// 288 measurements in a day: confidence 0.2, 1191.126 · (1.005⁻², 1, 6), 1203.751 · the same.
		"every five minutes": {func(m *recommend.Model) {
			for i := range predict.Wall(288) {
				one(m, start+5*i*minute, 1, 1, gi)
			}
		}, [6]int64{1180, 1192, 7147, 1192, 1204, 7223}},
		// Six hours of one core, then forty minutes of four: a tenth of all is 39.7, so that p90 is four; p50 is one. Confidence 399/1440,
		// p95 and p90 are 4849.70, 1191.126 · 1.003609⁻² = 1182.57, 4849.70 · 4.609023. Memory has had one peak, which is the highest.
		"p50 and p90 differ": {func(m *recommend.Model) {
			one(m, one(m, start, 360, 1, gi)+minute, 40, 4, 2*gi)
		}, [6]int64{1183, 4850, 22353, 2355, 2372, 10931}},
	} {
		m := recommend.New(recommend.Default())
		c.learn(m)
		if a := advice(t, m, "app"); !a.Known || amountsOf(a) != c.want {
			t.Errorf("%s: %v (known %t), want %v", name, amountsOf(a), a.Known, c.want)
		}
	}
}

// TestPeaks: memory that is needed for a minute a day is what is recommended; CPU that is needed for a minute a day is not.
func TestPeaks(t *testing.T) {
	t.Parallel()
	m := recommend.New(recommend.Default())
	now := start
	for range 5 {
		now = one(m, now+minute, 700, 0.1, gi/4)
		now = one(m, now+minute, 1, 8, 4*gi)
		now = one(m, now+minute, 739, 0.1, gi/4)
	}
	a := advice(t, m, "app")
	if a.Target.Memory < 4*gi || a.Lower.Memory < 4*gi || a.Target.CPU > 200 {
		t.Errorf("%+v", a)
	}
	// Fifteen days without the peak, each of which halves what it weighs, and it is forgotten.
	one(m, now+minute, 15*1440, 0.1, gi/4)
	if a := advice(t, m, "app"); a.Target.Memory > gi/2 {
		t.Errorf("after fifteen days without the peak: %+v", a)
	}
}

// TestOrderAndMonotony: the bounds enclose the target, and who uses more is never advised less. 101 measurements a pass: no percentile
// falls between two of them.
func TestOrderAndMonotony(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		less, more := recommend.New(recommend.Default()), recommend.New(recommend.Default())
		now := start
		for range 1 + rnd.IntN(3) {
			var a, b []recommend.Sample
			for range 101 {
				cores, bytes := rnd.ExpFloat64(), rnd.ExpFloat64()*gi
				a = append(a, sample("app", cores, bytes))
				b = append(b, sample("app", cores*(1+rnd.Float64()), bytes*(1+rnd.Float64())))
			}
			for range 70 {
				now += minute
				less.Learn(now, a)
				more.Learn(now, b)
			}
		}
		l, m := advice(t, less, "app"), advice(t, more, "app")
		for _, x := range []recommend.Advice{l, m} {
			if !x.Known || x.Lower.CPU > x.Target.CPU || x.Target.CPU > x.Upper.CPU || x.Lower.Memory > x.Target.Memory || x.Target.Memory > x.Upper.Memory ||
				x.Lower.CPU <= 0 || x.Lower.Memory <= 0 {
				t.Fatalf("round %d: %+v", round, x)
			}
		}
		la, ma := amountsOf(l), amountsOf(m)
		for i := range la {
			if la[i] > ma[i] {
				t.Fatalf("round %d: less use is advised %v, more %v", round, la, ma)
			}
		}
	}
}

// TestColdStart: nothing is said before an hour was measured; the longer, the closer are the bounds.
func TestColdStart(t *testing.T) {
	t.Parallel()
	m := recommend.New(recommend.Default())
	if m.Advice() != nil {
		t.Error("advice without a measurement")
	}
	now := one(m, start, 60, 1, gi)
	if a := advice(t, m, "app"); a != (recommend.Advice{Container: "app"}) {
		t.Errorf("after 59 minutes: %+v", a)
	}
	now = one(m, now+minute, 1, 1, gi)
	first := advice(t, m, "app")
	one(m, now+minute, 600, 1, gi)
	if then := advice(t, m, "app"); !first.Known || then.Upper.CPU >= first.Upper.CPU || then.Lower.CPU <= first.Lower.CPU || then.Target != first.Target {
		t.Errorf("after an hour %+v, after eleven %+v", first, then)
	}
	// At once, where that is wanted.
	c := recommend.Default()
	c.ColdStart = 0
	m = recommend.New(c)
	one(m, start, 1, 1, gi)
	if a := advice(t, m, "app"); !a.Known || a.Upper.CPU < 1000*a.Target.CPU {
		t.Errorf("after one measurement: %+v", a)
	}
}

// TestNothingMeasured: a figure that is missing, or no amount, trains nothing, and makes nobody known.
func TestNothingMeasured(t *testing.T) {
	t.Parallel()
	m := recommend.New(recommend.Default())
	now := one(m, start, 120, 1, gi)
	before := m.Advice()
	bad := []recommend.Sample{
		{Container: "app"}, {Container: "ghost"},
		{Container: "app", Usage: predict.Usage{CPU: unit.Measured[float64]{V: -1, OK: true}, Memory: unit.Measured[float64]{V: math.NaN(), OK: true}}},
		{Container: "ghost", Usage: predict.Usage{CPU: unit.Measured[float64]{V: math.Inf(1), OK: true}}},
	}
	if skipped := m.Learn(now+minute, bad); skipped != 8 {
		t.Errorf("%d figures skipped, want 8", skipped)
	}
	if after := m.Advice(); !reflect.DeepEqual(before, after) || m.Len() != 1 {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	// One resource alone is learned, and is not enough.
	m = recommend.New(recommend.Default())
	for i := range 200 {
		m.Learn(start+predict.Wall(i)*minute, []recommend.Sample{{Container: "app", Usage: predict.Usage{CPU: unit.Got(1.0)}}})
	}
	if a := advice(t, m, "app"); a.Known {
		t.Errorf("without memory: %+v", a)
	}
}

// TestClock: a clock that jumps back takes the past along, one that jumps ahead has forgotten, and asks for a new cold start.
func TestClock(t *testing.T) {
	t.Parallel()
	still, back := recommend.New(recommend.Default()), recommend.New(recommend.Default())
	now := one(still, start, 600, 1, gi)
	one(back, start, 600, 1, gi)
	one(still, now+minute, 100, 2, gi)
	one(back, now-400*day, 100, 2, gi)
	s, b := amountsOf(advice(t, still, "app")), amountsOf(advice(t, back, "app"))
	for i := range s {
		if math.Abs(float64(s[i]-b[i])) > 0.01*float64(s[i]) {
			t.Errorf("the clock went back 400 days: %v, want %v", b, s)
		}
	}
	// The day whose peak is being sought ends when it would have ended.
	peak := recommend.New(recommend.Default())
	one(peak, start, 720, 1, 4*gi)
	one(peak, start-400*day, 4*1440, 1, gi/4)
	if a := advice(t, peak, "app"); a.Lower.Memory > gi || a.Target.Memory < gi/4 {
		t.Errorf("the clock went back in the middle of a day: %+v", a)
	}
	ahead := recommend.New(recommend.Default())
	one(ahead, start, 600, 1, gi)
	then := one(ahead, now+400*day, 2, 3, 2*gi)
	if a := advice(t, ahead, "app"); a.Known {
		t.Errorf("400 days later, after two measurements: %+v", a)
	}
	one(ahead, then+minute, 60, 3, 2*gi)
	if a := advice(t, ahead, "app"); !a.Known || a.Lower.CPU < 2500 || a.Target.Memory < 2*gi {
		t.Errorf("400 days and an hour later: %+v", a)
	}
}

// TestContainers: each has its own, one that has gone is not told after an hour, and no more than so many are remembered.
func TestContainers(t *testing.T) {
	t.Parallel()
	m := recommend.New(recommend.Default())
	now := start
	for range 90 {
		now += minute
		m.Learn(now, []recommend.Sample{sample("side", 0.1, gi/8), sample("app", 1, gi), sample("app", 1, gi)})
	}
	all := m.Advice()
	if len(all) != 2 || all[0].Container != "app" || all[1].Container != "side" || all[0].Target.CPU <= all[1].Target.CPU {
		t.Fatalf("%+v", all)
	}
	one(m, now+minute, 62, 1, gi)
	if all := m.Advice(); len(all) != 1 || m.Len() != 2 {
		t.Errorf("an hour after the side container has gone: %+v, %d remembered", all, m.Len())
	}
	one(m, now+15*day, 2, 1, gi)
	if m.Len() != 1 {
		t.Errorf("%d containers after two weeks", m.Len())
	}
	var many []recommend.Sample
	for i := range recommend.MaxContainers + 10 {
		many = append(many, sample(fmt.Sprintf("c%02d", i), 1, gi))
	}
	m = recommend.New(recommend.Default())
	if skipped := m.Learn(start, many); skipped != 20 || m.Len() != recommend.MaxContainers {
		t.Errorf("%d skipped, %d remembered", skipped, m.Len())
	}
}

// TestRestart: what was kept says what the model said, and goes on as the model goes on.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := recommend.Default()
	before, after := recommend.New(c), recommend.New(c)
	rnd := rand.New(rand.NewPCG(3, 4))
	now := start
	learn := func(n int, models ...*recommend.Model) {
		for range n {
			now += minute
			s := []recommend.Sample{sample("app", rnd.ExpFloat64(), rnd.ExpFloat64()*gi), sample("side", 0.1, gi/8)}
			for _, m := range models {
				m.Learn(now, s)
			}
		}
	}
	learn(3*1440, before)
	for _, h := range before.Histories() {
		if err := after.Restore(h); err != nil {
			t.Fatal(err)
		}
	}
	compare := func(when string) {
		t.Helper()
		if a, b := before.Advice(), after.Advice(); len(b) != 2 || !reflect.DeepEqual(a, b) {
			t.Errorf("%s: before %+v\nafter %+v", when, a, b)
		}
	}
	compare("at once")
	learn(1440, before, after)
	compare("a day later")
}

// TestManyPods: what thousands of pods leave is kept too.
func TestManyPods(t *testing.T) {
	t.Parallel()
	m := recommend.New(recommend.Default())
	many := make([]recommend.Sample, 20_000)
	for i := range many {
		many[i] = sample("app", 1, gi)
	}
	now := start
	for range 600 {
		now += minute
		m.Learn(now, many)
	}
	again := recommend.New(recommend.Default())
	if err := again.Restore(m.Histories()[0]); err != nil || !reflect.DeepEqual(again.Advice(), m.Advice()) {
		t.Errorf("%v: %+v, want %+v", err, again.Advice(), m.Advice())
	}
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	good := func() recommend.History {
		m := recommend.New(recommend.Default())
		one(m, start, 60, 1, gi)
		return m.Histories()[0]
	}
	for says, spoil := range map[string]func(*recommend.History){
		"no name":        func(h *recommend.History) { h.Container = "" },
		"a peak of":      func(h *recommend.History) { h.Peak = math.NaN() },
		"a peak of -1":   func(h *recommend.History) { h.Peak = -1 },
		"cpu: bucket":    func(h *recommend.History) { h.CPU.Weights = map[int]uint32{-1: 3} },
		"memory: bucket": func(h *recommend.History) { h.Memory.Weights, h.Memory.Total = map[int]uint32{1000: 3}, 3 },
		"measured for":   func(h *recommend.History) { h.Memory.Samples = math.Inf(1) },
		"measured for -": func(h *recommend.History) { h.CPU.Measured = -1 },
		"total weight":   func(h *recommend.History) { h.CPU.Total = math.NaN() },
	} {
		h := good()
		spoil(&h)
		m := recommend.New(recommend.Default())
		if err := m.Restore(h); err == nil || !strings.Contains(err.Error(), says) || m.Len() != 0 {
			t.Errorf("%v, want %q; %d containers", err, says, m.Len())
		}
	}
	if err := recommend.New(recommend.Default()).Restore(good()); err != nil {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if err := recommend.Default().Validate(); err != nil {
		t.Error(err)
	}
	for says, spoil := range map[string]func(*recommend.Config){
		"half-life": func(c *recommend.Config) { c.HalfLife = 0 }, "peaks": func(c *recommend.Config) { c.PeakEvery = 1 },
		"cold start": func(c *recommend.Config) { c.ColdStart = -1 }, "margin": func(c *recommend.Config) { c.Margin = 1001 },
	} {
		c := recommend.Default()
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
