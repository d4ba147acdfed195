// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/sysctl"
)

// Parameters reports whether a step would look at the node's kernel parameters, which is for those who named one.
func Parameters(s *State, v *node.View) bool {
	t := systemStrategy(v)
	return t.MinFreeKbytesFactor != nil || t.WatermarkScaleFactor != nil || len(s.Sysctl.Held) > 0
}

// sysctlInput is what the loop of the node's parameters looks at.
func sysctlInput(f *Facts) sysctl.Input {
	return sysctl.Input{Strategy: systemStrategy(f.View), Memory: f.View.MemCapacity, Current: f.Parameters}
}

// systemStrategy is what may be put in force: nothing where memory QoS does not write, and nothing of what is ceded. What was
// ours goes back then.
func systemStrategy(v *node.View) strategy.SystemStrategy {
	if v.Strategy.SystemStrategy == nil || v.Mode(protocol.FeatureMemory) != node.Active {
		return strategy.SystemStrategy{}
	}
	t := *v.Strategy.SystemStrategy
	if v.Ceded.Has(plan.VMMinFree) {
		t.MinFreeKbytesFactor = nil
	}
	if v.Ceded.Has(plan.VMWatermarkScale) {
		t.WatermarkScaleFactor = nil
	}
	return t
}

// NoParameters says why no kernel parameter is wanted, where that is so.
func NoParameters(v *node.View) string {
	switch given := v.Strategy.SystemStrategy; {
	case v.Mode(protocol.FeatureMemory) != node.Active:
		return "the feature " + protocol.FeatureMemory.String() + " is not active on this node"
	case given != nil && (given.MinFreeKbytesFactor != nil || given.WatermarkScaleFactor != nil):
		return "what systemStrategy asks for is ceded to another program"
	}
	return "systemStrategy names none"
}
