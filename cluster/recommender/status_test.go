// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommender

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/analysis/v1alpha1"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
	"github.com/koord-rt/koord-rt/policy/recommend"
)

// TestDecide: what is worth a write, and when.
func TestDecide(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	known := func(target, lower, upper unit.MilliCPU) []recommend.Advice {
		at := func(m unit.MilliCPU) predict.Resources { return predict.Resources{CPU: m, Memory: 1 << 30} }
		return []recommend.Advice{{Container: "app", Target: at(target), Lower: at(lower), Upper: at(upper), Known: true}}
	}
	measured := verdict{metav1.ConditionTrue, reasonPods, "m"}
	base := func() *told {
		return &told{
			now: begun, generation: 3, stored: &v1alpha1.RecommendationStatus{}, pods: measured, advice: known(1000, 500, 2000), cold: time.Hour,
			history: map[string]string{"app": "old"},
		}
	}
	first := decide(base())
	if first == nil || !first.UpdateTime.Time.Equal(begun) || first.History.Generation != 3 || first.History.Containers["app"] != "old" {
		t.Fatalf("%+v", first)
	}
	for name, c := range map[string]struct {
		after  time.Duration
		change func(*told)
		writes bool
	}{
		"nothing":                       {24 * time.Hour, func(*told) {}, false},
		"target 9 % more":               {59 * time.Minute, func(d *told) { d.advice = known(1090, 500, 2000) }, false},
		"target 11 % more, at once":     {9 * time.Minute, func(d *told) { d.advice = known(1110, 500, 2000) }, false},
		"target 11 % more":              {10 * time.Minute, func(d *told) { d.advice = known(1110, 500, 2000) }, true},
		"target 11 % less":              {10 * time.Minute, func(d *told) { d.advice = known(890, 500, 2000) }, true},
		"bounds 19 % off":               {10 * time.Minute, func(d *told) { d.advice = known(1000, 590, 1700) }, false},
		"lower bound 21 % off":          {10 * time.Minute, func(d *told) { d.advice = known(1000, 605, 2000) }, true},
		"upper bound 21 % off":          {10 * time.Minute, func(d *told) { d.advice = known(1000, 500, 2420) }, true},
		"history, before an hour":       {59 * time.Minute, func(d *told) { d.history = map[string]string{"app": "new"} }, false},
		"history, after an hour":        {time.Hour, func(d *told) { d.history = map[string]string{"app": "new"} }, true},
		"another reason, at once":       {time.Second, func(d *told) { d.pods = verdict{metav1.ConditionFalse, reasonNoPods, "n"} }, true},
		"another message, at once":      {time.Second, func(d *told) { d.pods.message = "n" }, true},
		"nothing to say of the pods":    {time.Second, func(d *told) { d.pods = verdict{} }, false},
		"nothing is known any more":     {time.Second, func(d *told) { d.advice[0].Known = false }, true},
		"one more container, not known": {time.Second, func(d *told) { d.advice = append(d.advice, recommend.Advice{Container: "side"}) }, true},
		"another target":                {time.Second, func(d *told) { d.generation = 4 }, true},
		"a clock that was ahead":        {-time.Hour, func(d *told) { d.advice = known(1110, 500, 2000) }, true},
		"somebody else's condition": {time.Second, func(d *told) {
			d.stored.Conditions = append(d.stored.Conditions, metav1.Condition{Type: "Other", Status: metav1.ConditionTrue})
		}, false},
	} {
		d := base()
		d.now, d.stored = begun.Add(c.after), first.DeepCopy()
		c.change(d)
		next := decide(d)
		if (next != nil) != c.writes {
			t.Errorf("%s: written: %t", name, next != nil)
		}
		if next == nil {
			continue
		}
		// A condition that goes on to say the same began when it did.
		for _, kind := range []string{v1alpha1.ConditionObserved, v1alpha1.ConditionProvided} {
			was, is := meta.FindStatusCondition(first.Conditions, kind), meta.FindStatusCondition(next.Conditions, kind)
			if want := map[bool]time.Time{true: begun, false: d.now}[was.Status == is.Status]; !is.LastTransitionTime.Time.Equal(want) {
				t.Errorf("%s: %s since %s", name, kind, is.LastTransitionTime)
			}
		}
	}
}

// TestAnotherTarget: what was said of the pods of another target is not kept.
func TestAnotherTarget(t *testing.T) {
	t.Parallel()
	d := &told{now: time.Unix(1000, 0), generation: 4, stored: &v1alpha1.RecommendationStatus{Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionObserved, Status: metav1.ConditionTrue, Reason: reasonPods, ObservedGeneration: 3},
	}}}
	if next := decide(d); next == nil || len(next.Conditions) != 1 || next.Conditions[0].Type != v1alpha1.ConditionProvided {
		t.Errorf("%+v", next)
	}
	d.generation = 3
	if next := decide(d); next == nil || len(next.Conditions) != 2 {
		t.Errorf("%+v", next)
	}
}

// TestWishes: nodes are asked, and no longer asked, for container figures where that is ours to say.
func TestWishes(t *testing.T) {
	t.Parallel()
	yes, no, seconds := true, false, int64(60)
	mine := []metav1.ManagedFieldsEntry{{Manager: manager}, {Manager: wishManager}}
	node := func(name string, spec slov1alpha1.NodeMetricSpec, by []metav1.ManagedFieldsEntry) *kept.NodeMetric {
		return kept.NodeMetricOf(&slov1alpha1.NodeMetric{ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: by}, Spec: spec}, true)
	}
	on, off := slov1alpha1.NodeMetricSpec{MetricCollectPolicy: &slov1alpha1.CollectPolicy{ContainerMetrics: &yes}}, slov1alpha1.NodeMetricSpec{MetricCollectPolicy: &slov1alpha1.CollectPolicy{ContainerMetrics: &no}}
	all := []*kept.NodeMetric{
		node("new", slov1alpha1.NodeMetricSpec{MetricCollectPolicy: &slov1alpha1.CollectPolicy{}}, nil), node("bare", slov1alpha1.NodeMetricSpec{}, nil),
		node("asked", on, mine), node("users", on, nil), node("refuses", off, nil), node("documents", slov1alpha1.NodeMetricSpec{CollectionIntervalSeconds: &seconds}, nil),
		node("left", on, mine), node("others", on, nil),
	}
	asking := map[string]bool{"new": true, "bare": true, "asked": true, "users": true, "refuses": true, "documents": true, "without metric": true}
	for whole, want := range map[bool][]string{true: {"+new", "+bare", "-left"}, false: {"+new", "+bare"}} {
		var got []string
		for _, w := range wishes(all, asking, whole) {
			got = append(got, map[bool]string{true: "+", false: "-"}[w.want]+w.metric.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("whole %t: %q, want %q", whole, got, want)
		}
	}
}
