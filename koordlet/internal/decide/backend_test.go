// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// kept is another backend of the window: every sample, as it came.
type kept map[series][]sample.Sample

type series struct {
	of sample.Subject
	m  sample.Metric
}

var _ window.Store = kept{}

func (k kept) Append(batch []sample.Sample) {
	for _, s := range batch {
		key := series{s.Subject, s.Metric}
		k[key] = append(k[key], s)
	}
}

func (k kept) in(s sample.Subject, m sample.Metric, from, to unit.Micros) (out []sample.Sample) {
	for _, x := range k[series{s, m}] {
		if x.At > from && x.At <= to {
			out = append(out, x)
		}
	}
	return out
}

func (k kept) Last(s sample.Subject, m sample.Metric, from, to unit.Micros) (value float64, at unit.Micros, ok bool) {
	all := k.in(s, m, from, to)
	if len(all) == 0 {
		return 0, 0, false
	}
	x := all[len(all)-1]
	return x.Value, x.At, true
}

func (k kept) Query(s sample.Subject, m sample.Metric, from, to unit.Micros) (out sample.Summary) {
	all := k.in(s, m, from, to)
	if len(all) == 0 {
		return out
	}
	values := make([]float64, len(all))
	for i, x := range all {
		values[i] = x.Value
		out.Avg += x.Value
	}
	out.Avg /= float64(len(all))
	out.Last, out.From, out.To, out.Count = values[len(values)-1], all[0].At, all[len(all)-1].At, len(all)
	out.Covered = float64(len(all)) * float64(unit.Second) / float64(to-from)
	slices.Sort(values)
	rank := func(p int) float64 { return values[sample.Rank(len(values), p)-1] }
	out.P50, out.P90, out.P95, out.P99, out.Max = rank(50), rank(90), rank(95), rank(99), values[len(values)-1]
	return out
}

func (k kept) Collect(unit.Micros) int { return 0 }

func (k kept) Full(unit.Micros) error {
	if len(k) > 1000 {
		return errors.New("more than a test needs")
	}
	return nil
}

// What the loops decide does not hang on who keeps the samples: two minutes of a load that moves, by the window that we have and by one
// that keeps everything. Values are sixteenths, which both hold exactly.
func TestAnotherBackendOfTheWindow(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	a, ours := facts(strategy.SuppressCFSQuota)
	a.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstAuto)
	b := *a
	other := kept{}
	b.Window = other
	var s, z decide.State
	decided := map[string]bool{}
	for range 120 {
		a.Now += unit.Second
		b.Now = a.Now
		at := a.Now - unit.Second/2
		total, ls, be := 8+float64(r.IntN(160))/16, 4+float64(r.IntN(60))/16, float64(r.IntN(60))/16
		measure(ours, at, total, ls, be)
		other.Append([]sample.Sample{
			{Subject: sample.OfNode(), Metric: sample.CPUUsage, Value: total, At: at},
			{Subject: sample.OfPod("ls"), Metric: sample.CPUUsage, Value: ls, At: at},
			{Subject: sample.OfPod("be"), Metric: sample.CPUUsage, Value: be, At: at},
		})
		var one, two decide.Outcome
		s, one = decide.Step(s, a)
		z, two = decide.Step(z, &b)
		if !reflect.DeepEqual(one, two) {
			t.Fatalf("at %d: by our window\n%+v\nby another\n%+v", a.Now, one, two)
		}
		ours.Append(one.Samples)
		other.Append(two.Samples)
		decided[one.Suppress.Reason] = true
	}
	if len(decided) < 20 {
		t.Errorf("only %d different decisions: the load shows nothing", len(decided))
	}
}
