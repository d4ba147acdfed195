// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// A parameter is written when the strategy names it and its original comes back afterwards; by default nobody looks.
func TestParameters(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*decide.Facts){
		"no longer named": func(f *decide.Facts) { f.View.Strategy.SystemStrategy.WatermarkScaleFactor = nil },
		"feature off":     func(f *decide.Facts) { f.View.Modes[protocol.FeatureMemory] = node.Off },
		"observed":        func(f *decide.Facts) { f.View.Modes[protocol.FeatureMemory] = node.Observe },
		"ceded":           func(f *decide.Facts) { f.View.Ceded = plan.KnobSet(plan.VMWatermarkScale) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := facts(strategy.SuppressCPUSet)
			var s decide.State
			if decide.Parameters(&s, f.View) {
				t.Error("looked at by default")
			}
			f.View.Strategy.SystemStrategy.WatermarkScaleFactor = new(int64(150))
			f.Parameters = map[plan.Knob]int64{plan.VMWatermarkScale: 10}
			step := func(want string, owns bool) {
				t.Helper()
				var out decide.Outcome
				s, out = decide.Step(s, f)
				got := ""
				for i := range out.Node {
					got = out.Node[i].Value.String()
					f.Parameters[out.Node[i].Knob] = out.Node[i].Value.Int()
				}
				if got != want || out.Owns != owns {
					t.Errorf("%q, owns %v; want %q, %v", got, out.Owns, want, owns)
				}
			}
			step("150", true)
			step("", false)
			end(f)
			if !decide.Parameters(&s, f.View) {
				t.Error("what is ours is not looked at")
			}
			f.Urgent = true
			step("", false) // it can wait
			f.Urgent = false
			step("10", false)
			step("", true)
			if decide.Parameters(&s, f.View) {
				t.Error("looked at afterwards")
			}
		})
	}
}
