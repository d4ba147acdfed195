// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/interference"
)

// TestInterferenceHoldsDisks: an LS pod waits for the disk while a BE pod reads 150 MiB/s and writes 50. It is held to half of both, of nothing written
// to a tenth, and is free when nobody waits any more. Where no limit would be put in force nobody is tried.
func TestInterferenceHoldsDisks(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, tc := range map[string]struct {
		metric sample.Metric
		change func(*decide.Facts)
		writes float64
		tried  bool
	}{
		"pressure":           {sample.StallIOSome, nil, 50 * mib, true},
		"it only reads":      {sample.DiskLatency, nil, 0, true},
		"no limits of disks": {sample.StallIOSome, func(f *decide.Facts) { f.View.Kernel.Knobs[plan.IOWriteBPS].OK = false }, 0, false},
		"ceded":              {sample.StallIOSome, func(f *decide.Facts) { f.View.Ceded = plan.KnobSet(plan.IOReadBPS) }, 0, false},
		"opted out": {sample.StallIOSome, func(f *decide.Facts) {
			f.Members[0].Pod.Ask.OptOut = protocol.FeatureSet(0).With(protocol.FeatureBlkIO)
		}, 0, false},
		"no thresholds": {sample.StallIOSome, func(f *decide.Facts) { f.View.Strategy.ResourceUsedThresholdWithBE.Enable = new(false) }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, write := 150.0*mib, tc.writes
			l := newLife(func(f *decide.Facts) {
				f.View.Kernel.Knobs[plan.IOReadBPS].OK, f.View.Kernel.Knobs[plan.IOWriteBPS].OK = true, true
				if tc.change != nil {
					tc.change(f)
				}
			})
			run := func(seconds int, harms bool) (out decide.Outcome, said string) {
				for range seconds {
					part, at := 0.01, l.f.Now+unit.Second-unit.Second/10
					if harms && read > 120*mib {
						part = 0.4
					}
					l.w.Append([]sample.Sample{
						{Subject: sample.OfPod("be"), Metric: sample.DiskReadBytes, Value: read, At: at}, {Subject: sample.OfPod("be"), Metric: sample.DiskWriteBytes, Value: write, At: at},
					})
					var events []interference.Event
					out, events = l.run(1, tc.metric, part)
					for _, e := range events {
						said += e.Pod + " " + e.Text + "\n"
					}
					read, write = 150*mib, tc.writes
					if d, held := out.Dynamic.DiskLimits["be"]; held {
						read, write = min(read, float64(d.Read)), min(write, float64(d.Write))
					}
				}
				return out, said
			}
			if _, said := run(240, false); said != "" {
				t.Fatalf("in calm: %s", said)
			}
			out, said := run(60, true)
			if !strings.Contains(said, "ls disturbed") || strings.Contains(said, "suspected") != tc.tried || (out.Dynamic.DiskLimits != nil) != tc.tried {
				t.Fatalf("%+v\n%s", out.Dynamic.DiskLimits, said)
			}
			if !tc.tried {
				return
			}
			if d := out.Dynamic.DiskLimits["be"]; d.Read != 75*mib || d.Write != unit.Bytes(max(tc.writes/2, 7.5*mib)) || !strings.Contains(said, "be guilty") || !strings.Contains(d.Reason, "it is held to ") {
				t.Errorf("%+v\n%s", d, said)
			}
			if out.Dynamic.Quotas != nil || out.Dynamic.MemoryHigh != nil || len(out.Dynamic.DiskLimits) != 1 {
				t.Errorf("more is taken: %+v", out.Dynamic)
			}
			if out, said = run(300, false); out.Dynamic.DiskLimits != nil || !strings.Contains(said, "be released") {
				t.Errorf("at the end %+v\n%s", out.Dynamic.DiskLimits, said)
			}
			run(45, true)
			l.f.View.Modes[protocol.FeatureBlkIO] = node.Observe
			if out, _ = run(1, true); out.Dynamic.DiskLimits != nil || len(l.s.Interference.Suspects) != 0 {
				t.Errorf("block IO only observed: %+v", l.s.Interference.Suspects)
			}
		})
	}
}
