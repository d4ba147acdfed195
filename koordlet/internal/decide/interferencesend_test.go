// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods/podstest"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/interference"
)

// TestInterferenceHoldsWhatIsSent: the round trips of an LS pod take long while a BE pod sends 100 MiB/s. Where the uplink's sending is shaped
// that pod is limited to half of it, and free when the round trips are short again; where nothing is shaped, and for a pod that cannot be
// told apart, nobody is tried. One that does not slow down (UDP) sends far more than its class lets through: half of what comes out counts.
func TestInterferenceHoldsWhatIsSent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*decide.Facts, string) string
		tried  bool
		blind  float64 // what comes out of ten times as much, which it sends whatever gets through
	}{
		"shaped": {change: func(_ *decide.Facts, pod string) string { return pod }, tried: true},
		"blind":  {change: func(_ *decide.Facts, pod string) string { return pod }, tried: true, blind: 5e9 / 8},
		"blind, of no class": {change: func(f *decide.Facts, pod string) string {
			qos := f.View.Strategy.ResourceQOSStrategy
			qos.LSClass.NetworkQOS, qos.BEClass.NetworkQOS = qos.BEClass.NetworkQOS, nil
			return pod
		}, tried: true, blind: 1e10 / 8},
		"not shaped": {change: func(f *decide.Facts, pod string) string { f.Link = nil; return pod }},
		"the node's address": {change: func(_ *decide.Facts, pod string) string {
			return strings.Replace(pod, `"spec":{`, `"spec":{"hostNetwork":true,`, 1)
		}},
		"no address": {change: func(_ *decide.Facts, pod string) string {
			return strings.Replace(pod, `"podIP":"10.0.0.4"`, `"podIP":""`, 1)
		}},
		"opted out": {change: func(f *decide.Facts, pod string) string {
			f.Members[0].Pod.Ask.OptOut = protocol.FeatureSet(0).With(protocol.FeatureNetwork)
			return pod
		}},
		"no thresholds": {change: func(f *decide.Facts, pod string) string {
			f.View.Strategy.ResourceUsedThresholdWithBE.Enable = new(false)
			return pod
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			full := float64(100 << 20)
			if tc.blind > 0 {
				full = tc.blind
			}
			sent := full // what comes out
			l := newLife(func(f *decide.Facts) {
				share(f)
				f.Link = uplink()
				f.Pods = podstest.Snapshot(t, tc.change(f, `{"metadata":{"uid":"be","name":"be","namespace":"x","labels":{"koordinator.sh/qosClass":"BE"}},`+
					`"spec":{"priority":5500,"containers":[{"name":"c"}]},"status":{"phase":"Running","podIP":"10.0.0.4"}}`))
			})
			seen := func(out float64) float64 {
				if tc.blind > 0 {
					return 10 * full
				}
				return out
			}
			run := func(seconds int, harms bool) (out decide.Outcome, said string) {
				for range seconds {
					at, rtt := l.f.Now+unit.Second-unit.Second/10, 300.0
					if harms && sent > 0.9*full {
						rtt = 5000
					}
					l.w.Append([]sample.Sample{{Subject: sample.OfPod("be"), Metric: sample.NetworkTransmit, Value: seen(sent), At: at}})
					var events []interference.Event
					out, events = l.run(1, sample.NetworkRTT, rtt/1e6)
					for i := range out.Node {
						l.f.Link.Now[out.Node[i].Key] = out.Node[i].Value.String()
					}
					sent = full
					for _, d := range out.Network.Directions {
						for _, p := range d.Pods {
							if p.Limit > 0 {
								sent = min(sent, float64(p.Limit)/8)
							}
						}
					}
					for _, e := range events {
						said += e.Pod + " " + e.Text + "\n"
					}
				}
				return out, said
			}
			if _, said := run(240, false); said != "" {
				t.Fatalf("in calm: %s", said)
			}
			out, said := run(60, true)
			if !strings.Contains(said, "ls disturbed: network latency") || strings.Contains(said, "suspected") != tc.tried {
				t.Fatalf("%s", said)
			}
			if !tc.tried {
				return
			}
			if sent > full/2 || !strings.Contains(said, "be guilty") || out.Dynamic.Quotas != nil || out.Dynamic.MemoryHigh != nil {
				t.Errorf("sends %.0f, quotas %+v, memory %+v\n%s", sent, out.Dynamic.Quotas, out.Dynamic.MemoryHigh, said)
			}
			if _, said = run(300, false); sent < full || !strings.Contains(said, "be released") {
				t.Errorf("at the end it sends %.0f\n%s", sent, said)
			}
			run(60, true)
			if sent > full/2 {
				t.Fatal("not held once more")
			}
			l.f.View.Modes[protocol.FeatureNetwork] = node.Observe
			if out, _ = run(2, true); len(l.s.Interference.Suspects) != 0 || len(out.Network.Directions) != 0 {
				t.Errorf("network QoS only observes: %+v, %+v", l.s.Interference.Suspects, out.Network.Directions)
			}
		})
	}
}
