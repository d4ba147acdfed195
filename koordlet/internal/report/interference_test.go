// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/policy/interference"
)

// Victim and antagonist stand in the extensions of their pods, and nowhere else.
func TestInterferenceIsReported(t *testing.T) {
	t.Parallel()
	in := documents(t)
	in.Interference = Interfered(&interference.Output{
		Victims: []interference.Victim{
			{Pod: "api-uid", Signal: interference.CPUPressure, Value: 0.3512345, Mean: 0.05, Reason: "35.12 %, usual 5 %"},
			{Pod: "api-uid", Signal: interference.DiskLatency, Value: 12345.678, Mean: interference.Level(math.Inf(1))},
		},
		Caps: []interference.Cap{{Pod: "spark-uid", Resource: interference.CPU, Phase: interference.Guilty, Limit: 4, Reason: "held to 4 CPUs"}},
	})
	got := Build(&in)
	var found []string
	for _, p := range got.PodsMetric {
		if p.Extensions != nil {
			found = append(found, p.Name+text(t, p.Extensions))
		}
	}
	want := []string{
		`api{
 "koord-rt.dev/interference": {
  "disturbed": [
   {
    "signal": "CPU pressure",
    "value": 0.3512,
    "usual": 0.05,
    "reason": "35.12 %, usual 5 %"
   },
   {
    "signal": "disk latency",
    "value": 12350,
    "usual": 0
   }
  ]
 }
}`, `spark{
 "koord-rt.dev/interference": {
  "held": [
   {
    "resource": "cpu",
    "state": "guilty",
    "reason": "held to 4 CPUs"
   }
  ]
 }
}`,
	}
	if d := cmp.Diff(want, found); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if held := Measure(&in).Held; held != "spark-uid " {
		t.Errorf("held: %q, want spark alone: a victim is not held", held)
	}
	if Interfered(&interference.Output{}) != nil {
		t.Error("something was found where nothing is")
	}
}
