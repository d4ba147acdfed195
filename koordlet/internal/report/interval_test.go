// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestPercentilesAtAnyInterval: a node that is measured every five seconds tells the percentiles of five minutes after half of them, as one that is
// measured every second.
func TestPercentilesAtAnyInterval(t *testing.T) {
	t.Parallel()
	for _, interval := range []unit.Micros{unit.Second, 5 * unit.Second, unit.Minute} {
		w := window.New(window.Options{Interval: interval})
		in := documents(t)
		in.Window, in.Policy.Windows = w, []time.Duration{5 * time.Minute}
		told := unit.Micros(-1)
		for since := unit.Micros(0); since < 300*unit.Second && told < 0; since += interval {
			in.At = hour + since
			for _, m := range []sample.Metric{sample.CPUUsage, sample.MemoryUsage} {
				w.Append([]sample.Sample{{Subject: sample.OfNode(), Metric: m, Value: 1, At: in.At}, {Subject: sample.OfSystem(), Metric: m, Value: 1, At: in.At}})
			}
			if got := Build(&in).NodeMetric; len(got.AggregatedNodeUsages) == 1 && len(got.AggregatedSystemUsages) == 1 {
				told = since + interval // the first sample is of the interval before it
			}
		}
		if told < 150*unit.Second || told >= 150*unit.Second+interval {
			t.Errorf("every %d s: told after %d s", interval/unit.Second, told/unit.Second)
		}
	}
}
