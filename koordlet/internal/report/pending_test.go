// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/slo"
)

// A generation that the node cannot put in force takes nothing away from what is: only Applied says so, and of which.
func TestStrategyStatusOfAPendingGeneration(t *testing.T) {
	t.Parallel()
	first, later := time.Unix(100, 0), time.Unix(200, 0)
	old, _ := StrategyStatus(slo.NodeSLOStatus{}, &InForce{UID: "u", Generation: 3, Features: states()}, first)
	pending := &InForce{UID: "u", Generation: 4, Pending: true, Problem: "no space left", Features: states()}
	got, changed := StrategyStatus(old, pending, later)
	if !changed || got.ObservedGeneration != 3 || got.NodeMetric == nil || got.NodeMetric.UpdateTime != slo.At(first) {
		t.Errorf("changed %v: %+v", changed, got)
	}
	for i, c := range got.Conditions {
		if i == 0 && (c.Status != slo.ConditionFalse || c.ObservedGeneration != 4 || c.Message != "no space left" || c.LastTransitionTime != slo.At(later)) ||
			i > 0 && (c.ObservedGeneration != 3 || c != old.Conditions[i]) {
			t.Errorf("%+v", c)
		}
	}
	if _, changed = StrategyStatus(got, pending, later); changed {
		t.Error("told twice")
	}
	pending.Generation = 5
	if got, changed = StrategyStatus(got, pending, later); !changed || got.Conditions[0].ObservedGeneration != 5 {
		t.Errorf("the next one: changed %v, %+v", changed, got.Conditions[0])
	}
	if got, changed = StrategyStatus(got, &InForce{UID: "u", Generation: 5, Features: states()}, later); !changed || got.ObservedGeneration != 5 ||
		got.Conditions[0].Status != slo.ConditionTrue || got.NodeMetric.UpdateTime != slo.At(later) {
		t.Errorf("in force at last: changed %v, %+v", changed, got)
	}
	if got, changed = StrategyStatus(slo.NodeSLOStatus{}, pending, later); !changed || got.NodeMetric != nil || got.ObservedGeneration != 0 {
		t.Errorf("never in force: %+v", got)
	}
}
