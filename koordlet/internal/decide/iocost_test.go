// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// A disk's cost control is set when cgroupRoot names the disk, and goes back afterwards; by default nobody looks.
func TestIOCost(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*decide.Facts){
		"no longer named": func(f *decide.Facts) { f.View.Strategy.ResourceQOSStrategy.CgroupRoot.BlkIOQOS.Blocks = nil },
		"not enabled":     func(f *decide.Facts) { f.View.Strategy.ResourceQOSStrategy.CgroupRoot.BlkIOQOS.Enable = new(false) },
		"feature off":     func(f *decide.Facts) { f.View.Modes[protocol.FeatureBlkIO] = node.Off },
		"observed":        func(f *decide.Facts) { f.View.Modes[protocol.FeatureBlkIO] = node.Observe },
		"ceded":           func(f *decide.Facts) { f.View.Ceded = plan.KnobSet(plan.IOCostQoS) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := facts(strategy.SuppressCPUSet)
			var s decide.State
			if decide.IOCost(&s, f.View) {
				t.Error("looked at by default")
			}
			f.View.Kernel.Disks = map[string]string{"sda": "8:0"}
			f.View.Strategy.ResourceQOSStrategy.CgroupRoot.BlkIOQOS = &strategy.BlkIOQOS{Enable: new(true), Blocks: []strategy.Block{
				{Name: "sda", Type: strategy.BlockDevice, IOCfg: strategy.IOCfg{ReadLatency: new(int64(5000)), ReadBPS: new(int64(1))}},
			}}
			f.CostLines = map[plan.Knob]map[string]string{plan.IOCostQoS: {}, plan.IOCostModel: {}}
			step := func(want string, owns bool) decide.Outcome {
				t.Helper()
				var out decide.Outcome
				s, out = decide.Step(s, f)
				got := ""
				for i := range out.Node {
					got = out.Node[i].Value.String()
					f.CostLines[out.Node[i].Knob][out.Node[i].Key] = got
				}
				if got != want || out.Owns != owns {
					t.Errorf("%q, owns %v; want %q, %v", got, out.Owns, want, owns)
				}
				return out
			}
			out := step("enable=1 ctrl=user rpct=95.00 rlat=5000 wpct=95.00 wlat=3000", true)
			if len(out.IOCost.Problems) != 1 || !strings.Contains(out.IOCost.Problems[0], "readBPS: set nothing here") {
				t.Errorf("problems %q", out.IOCost.Problems)
			}
			step("", false)
			end(f)
			if !decide.IOCost(&s, f.View) {
				t.Error("what is ours is not looked at")
			}
			f.Urgent = true
			// It can wait, and what was decided is told as before.
			if out = step("", false); len(out.IOCost.Problems) != 1 || out.IOCost.Reason != "io.cost.qos of 8:0: latencies of cgroupRoot.blkioQOS" {
				t.Errorf("told between two ticks: %q, problems %q", out.IOCost.Reason, out.IOCost.Problems)
			}
			f.Urgent = false
			step("enable=0 ctrl=auto", false)
			step("", true)
			if s, out = decide.Step(s, f); out.IOCost.Reason != "" {
				t.Errorf("told afterwards: %q", out.IOCost.Reason)
			}
			if name != "ceded" && decide.IOCost(&s, f.View) {
				t.Error("looked at afterwards")
			}
		})
	}
}
