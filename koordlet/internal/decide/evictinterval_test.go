// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// TestEvictAtAnyInterval: a window of 60 s is measured for long enough when its samples stand for 20 of them, however seldom they come.
func TestEvictAtAnyInterval(t *testing.T) {
	t.Parallel()
	const decided, waits = "BE pods wait for a CPU 86% of the time on average, above 85%", "not measured for long enough"
	for name, tc := range map[string]struct {
		interval     unit.Micros // in seconds
		samples      unit.Micros
		want, reason string
	}{
		"every second":            {1, 60, "be2", decided},
		"every second, too few":   {1, 19, "", waits},
		"every 5 s":               {5, 12, "be2", decided},
		"every 5 s, since 25 s":   {5, 5, "be2", decided},
		"every 5 s, too few":      {5, 3, "", waits},
		"every half minute":       {30, 2, "be2", decided},
		"every minute, the first": {60, 1, "be2", decided},
	} {
		f, _ := crowded(t, func(t *strategy.ResourceThresholdStrategy) { t.CPUEvictPSIThresholdPercent = new(int64(85)) })
		w := window.New(window.Options{Interval: tc.interval * unit.Second})
		f.Window, f.Interval = w, tc.interval*unit.Second
		be := sample.OfQoS(protocol.QoSBE)
		for i := tc.samples - 1; i >= 0; i-- {
			at := now - unit.Second/2 - i*f.Interval
			measure(w, at, 14, 8, 0.5)
			for _, s := range []sample.Sample{
				{Subject: sample.OfPod("be2"), Metric: sample.CPUUsage, Value: 4},
				{Subject: be, Metric: sample.CPUUsage, Value: 4.8}, {Subject: be, Metric: sample.StallCPUSome, Value: 860_000},
			} {
				s.At = at
				w.Append([]sample.Sample{s})
			}
		}
		_, out := decide.Step(decide.State{}, f)
		if d := decision(&out, evict.BECPUEvict); victims(&out) != tc.want || !strings.Contains(d.Reason, tc.reason) {
			t.Errorf("%s: %q, %+v", name, victims(&out), d)
		}
	}
}
