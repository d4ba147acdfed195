// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// loopStates are the loops beside the features of creation and evictions, as NodeSLO.status names them: what each does under the
// strategy that is in force. noReclaim says why the kernel cannot be asked to reclaim, tickAlone why nothing is decided between two
// ticks; empty where that is done. Nothing here moves with the load: a status is written when it changes.
func loopStates(cfg *config.Koordlet, v *node.View, noReclaim, tickAlone string) []node.FeatureState {
	return []node.FeatureState{suppression(v, tickAlone), quotaBurst(cfg, v), memoryReclaim(v, noReclaim), interferenceState(v)}
}

// hindered is held for a state of NodeSLO.status.
func hindered(s node.FeatureState, whys ...string) node.FeatureState {
	for _, why := range whys {
		if why != "" && (s.State == status.StateActive || s.State == status.StateDegraded) {
			s.State, s.Detail = status.StateDegraded, strings.TrimPrefix(s.Detail+"; "+why, "; ")
		}
	}
	return s
}

// withheld is why what the loops decide does not reach pods and containers, which it does by the dynamic state; empty when it does.
func withheld(l *agent.Look) string {
	if l.Withheld == nil {
		return ""
	}
	return "what is decided for pods and containers cannot be handed on: " + l.Withheld.Error()
}

const (
	notEnabled = "resourceUsedThresholdWithBE is not enabled"
	noUnified  = "cgroup v1 without a unified hierarchy beside it tells no pressure of a cgroup: each tick decides, and nothing between two"
)

// enabled reports the strategy's switch of everything about best effort.
func enabled(v *node.View) bool {
	t := v.Strategy.Threshold()
	return t.Enable != nil && *t.Enable
}

// writes takes a state that would be active down to what the configuration of a feature and its knob let it write.
func writes(v *node.View, f protocol.Feature, k plan.Knob, s node.FeatureState) node.FeatureState {
	switch mode := v.Mode(f); {
	case mode == node.Off:
		s.State, s.Detail = status.StateOff, "feature "+f.String()+" is switched off in the configuration"
	case mode == node.Observe:
		s.State, s.Detail = status.StateObserve, "feature "+f.String()+" is observed only"
	case v.Ceded.Has(k):
		s.State, s.Detail = status.StateOff, k.String()+" is ceded to another program"
	case !v.Kernel.Has(k):
		s.State, s.Detail = status.StateUnsupported, v.Kernel.Knobs[k].Why
	}
	return s
}

func suppression(v *node.View, tickAlone string) node.FeatureState {
	s := node.FeatureState{Feature: "cpu-suppress", State: status.StateActive}
	f, k := protocol.FeatureCPUSet, plan.CPUSetCPUs
	if decide.ByQuota(v) {
		f, k = protocol.FeatureBatch, plan.CPUQuota
	}
	if !enabled(v) {
		s.State, s.Detail = status.StateOff, notEnabled
		return s
	}
	if limits := slices.DeleteFunc([]string{decide.NoSet(v), tickAlone}, func(why string) bool { return why == "" }); len(limits) > 0 {
		s.State, s.Detail = status.StateDegraded, strings.Join(limits, "; ")
	}
	return writes(v, f, k, s)
}

func quotaBurst(cfg *config.Koordlet, v *node.View) node.FeatureState {
	s := node.FeatureState{Feature: "cfs-quota-burst", State: status.StateActive}
	policy := v.Strategy.Burst().Policy
	asked := policy != nil && (*policy == strategy.BurstAuto || *policy == strategy.BurstCFSQuotaOnly)
	switch {
	case !asked && !cfg.Tune:
		s.State, s.Detail = status.StateOff, "no policy of cpuBurstStrategy asks for it"
		if policy != nil {
			s.Detail = "cpuBurstStrategy.policy is " + *policy
		}
		return s
	case !asked:
		s.Detail = "tuning only"
	}
	return writes(v, protocol.FeatureBurst, plan.CPUQuota, s)
}

func memoryReclaim(v *node.View, noReclaim string) node.FeatureState {
	s := node.FeatureState{Feature: "memory-reclaim", State: status.StateActive}
	marked := slices.ContainsFunc([]string{"LSR", "LS", "BE"}, func(class string) bool {
		q := v.Strategy.ClassFor(class).MemoryQOS
		return q != nil && q.Enable != nil && *q.Enable
	})
	high := v.Kernel.Has(plan.MemoryHigh) && !v.Ceded.Has(plan.MemoryHigh)
	switch {
	case !enabled(v) && !marked:
		s.State, s.Detail = status.StateOff, notEnabled+", nor is memoryQOS of a class"
		return s
	case noReclaim != "" && !high:
		s.State, s.Detail = status.StateUnsupported, noReclaim
		return s
	case noReclaim != "":
		s.State, s.Detail = status.StateDegraded, "memory.high alone: "+noReclaim
	}
	if mode := v.Mode(protocol.FeatureMemory); mode != node.Active {
		s.State, s.Detail = status.StateOff, "feature "+protocol.FeatureMemory.String()+" does not write: reclaim has nothing to observe"
	}
	return s
}

// interferenceState: finding who is disturbed needs nobody's leave.
func interferenceState(v *node.View) node.FeatureState {
	s := node.FeatureState{Feature: "interference", State: status.StateDegraded}
	switch {
	case !enabled(v):
		s.Detail = "who is disturbed is told, nobody is throttled: " + notEnabled
	case v.Mode(protocol.FeatureBatch) != node.Active || v.Ceded.Has(plan.CPUQuota) || !v.Kernel.Has(plan.CPUQuota):
		s.Detail = "who is disturbed is told, nobody is throttled: feature " + protocol.FeatureBatch.String() + " does not write cpu.quota"
	default:
		s.State = status.StateActive
	}
	return s
}
