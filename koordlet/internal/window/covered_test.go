// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package window

import (
	"math"
	"testing"

	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestCoveredByTheInterval: a window is covered by the samples that there can be, in its fine part and where it is packed; slow metrics,
// which come every slowInterval, are taken to have one every ten seconds whatever the interval is.
func TestCoveredByTheInterval(t *testing.T) {
	t.Parallel()
	const seconds = 1200
	for name, c := range map[string]struct {
		interval       unit.Micros
		every, missing unit.Micros // what really comes: a sample after every, of 10 the first so many are lost
		want           float64
	}{
		"none told":           {0, unit.Second, 0, 1},
		"every second":        {unit.Second, unit.Second, 0, 1},
		"seconds missing":     {unit.Second, unit.Second, 6, 0.4},
		"1.5 s":               {unit.Second * 3 / 2, unit.Second * 3 / 2, 0, 1},
		"5 s":                 {5 * unit.Second, 5 * unit.Second, 0, 1},
		"5 s, missing":        {5 * unit.Second, 5 * unit.Second, 6, 0.4},
		"a minute":            {unit.Minute, unit.Minute, 0, 1},
		"more than there can": {5 * unit.Second, unit.Second, 0, 1},
		"less than a second":  {unit.Millisecond, unit.Second, 0, 1},
	} {
		m := New(Options{Interval: c.interval})
		for i := unit.Micros(0); i*c.every < seconds*unit.Second; i++ {
			if i > 0 && i%10 < c.missing { // the first one is the origin of time
				continue
			}
			x := cpu("c", 0, 1)
			x.At += i * c.every
			m.Append([]sample.Sample{x})
		}
		for second := 5; second < seconds; second += 10 {
			m.Append([]sample.Sample{{Subject: sample.OfPod("p"), Metric: sample.PSICPUSome, Value: 1, At: at(second)}})
		}
		for _, w := range [][2]int{{599, 1199}, {0, 600}, {299, 1199}} { // of ten samples each, and whole blocks
			if got := m.Query(sample.OfContainer("c"), sample.CPUUsage, at(w[0]), at(w[1])); math.Abs(got.Covered-c.want) > 1e-9 {
				t.Errorf("%s: %v has %d samples and is covered to %g, want %g", name, w, got.Count, got.Covered, c.want)
			}
			if got := m.Query(sample.OfPod("p"), sample.PSICPUSome, at(w[0]), at(w[1])); math.Abs(got.Covered-1) > 1e-9 {
				t.Errorf("%s: %v of a slow metric is covered to %g", name, w, got.Covered)
			}
		}
	}
}
