// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommender

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/analysis/v1alpha1"
	"github.com/koord-rt/koord-rt/policy/predict"
	"github.com/koord-rt/koord-rt/policy/recommend"
)

// Reasons of the conditions.
const (
	reasonProvided   = "Provided"
	reasonNotEnough  = "NotEnoughHistory"
	reasonPods       = "Measured"
	reasonNoPods     = "NoPods"
	reasonNoWorkload = "WorkloadNotFound"
	reasonInvalid    = "InvalidTarget"
	reasonMixed      = "NoContainerFigures"
	reasonSilent     = "NotMeasured"
)

const (
	// calm is the shortest time between two writes of amounts, keep the longest time in which what was learned is not kept.
	calm, keep = 10 * time.Minute, time.Hour
	// Differences of the target and of a bound, in percent, that are worth a write.
	worthTarget, worthBound = 10, 20
)

// verdict is what is said of the pods: no reason is what was said before.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

// told is what a decision about a status goes by.
type told struct {
	now        time.Time
	generation int64
	stored     *v1alpha1.RecommendationStatus
	pods       verdict
	advice     []recommend.Advice
	cold       time.Duration
	// history is what the model remembers.
	history map[string]string
}

// decide is the status to write, nil where nothing is worth it: another condition, at once; other amounts, after ten minutes; what was
// learned, after an hour. All is written together.
func decide(t *told) *v1alpha1.RecommendationStatus {
	next := &v1alpha1.RecommendationStatus{PodStatus: podStatus(t.advice), Conditions: conditions(t)}
	if len(t.history) > 0 {
		next.History = &v1alpha1.RecommendationHistory{Generation: t.generation, Containers: t.history}
	}
	since := keep
	if at := t.stored.UpdateTime; at != nil && !at.After(t.now) {
		since = t.now.Sub(at.Time)
	}
	switch {
	case !sameConditions(t.stored.Conditions, next.Conditions):
	case since >= calm && !near(t.stored.PodStatus, next.PodStatus):
	case since >= keep && !sameHistory(t.stored.History, next.History):
	default:
		return nil
	}
	at := metav1.NewTime(t.now)
	next.UpdateTime = &at
	return next
}

// podStatus is the advice as the object says it, nil without any.
func podStatus(advice []recommend.Advice) *v1alpha1.RecommendedPodStatus {
	var out *v1alpha1.RecommendedPodStatus
	for i := range advice {
		a := &advice[i]
		if !a.Known {
			continue
		}
		if out == nil {
			out = &v1alpha1.RecommendedPodStatus{}
		}
		out.ContainerStatuses = append(out.ContainerStatuses, v1alpha1.RecommendedContainerStatus{
			ContainerName: a.Container, Resources: amounts(a.Target), LowerBound: amounts(a.Lower), UpperBound: amounts(a.Upper),
		})
	}
	return out
}

// amounts are requests as people write them: memory in whole MiB, rounded up.
func amounts(r predict.Resources) corev1.ResourceList {
	const mi = 1 << 20
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(r.CPU), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity((int64(r.Memory)+mi-1)/mi*mi, resource.BinarySI),
	}
}

// conditions are the two, with the times of the stored ones where they say the same.
func conditions(t *told) []metav1.Condition {
	out := make([]metav1.Condition, 0, 2)
	add := func(kind string, v verdict) {
		c := metav1.Condition{
			Type: kind, Status: v.status, Reason: v.reason, Message: v.message, ObservedGeneration: t.generation,
			LastTransitionTime: metav1.NewTime(t.now),
		}
		if old := meta.FindStatusCondition(t.stored.Conditions, kind); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		out = append(out, c)
	}
	if t.pods.reason != "" {
		add(v1alpha1.ConditionObserved, t.pods)
	} else if old := meta.FindStatusCondition(t.stored.Conditions, v1alpha1.ConditionObserved); old != nil && old.ObservedGeneration == t.generation {
		out = append(out, *old)
	}
	var waiting []string
	for _, a := range t.advice {
		if !a.Known {
			waiting = append(waiting, a.Container)
		}
	}
	v := verdict{status: metav1.ConditionTrue, reason: reasonProvided, message: "podStatus says what to ask for"}
	switch {
	case len(waiting) == len(t.advice):
		v = verdict{metav1.ConditionFalse, reasonNotEnough, "every container must have been measured for " + t.cold.String()}
	case len(waiting) > 0:
		v.message += "; not yet measured for " + t.cold.String() + ": " + strings.Join(waiting, ", ")
	}
	add(v1alpha1.ConditionProvided, v)
	return out
}

// sameConditions compares ours: there may be others.
func sameConditions(a, b []metav1.Condition) bool {
	for _, kind := range []string{v1alpha1.ConditionObserved, v1alpha1.ConditionProvided} {
		x, y := meta.FindStatusCondition(a, kind), meta.FindStatusCondition(b, kind)
		if (x == nil) != (y == nil) {
			return false
		}
		if x != nil && (x.Status != y.Status || x.Reason != y.Reason || x.Message != y.Message || x.ObservedGeneration != y.ObservedGeneration) {
			return false
		}
	}
	return true
}

func sameHistory(a, b *v1alpha1.RecommendationHistory) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Generation == b.Generation && maps.Equal(a.Containers, b.Containers)
}

// near reports whether two recommendations differ by so little that nobody would change a request for it.
func near(a, b *v1alpha1.RecommendedPodStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.ContainerStatuses, b.ContainerStatuses, func(x, y v1alpha1.RecommendedContainerStatus) bool {
		return x.ContainerName == y.ContainerName && within(x.Resources, y.Resources, worthTarget) &&
			within(x.LowerBound, y.LowerBound, worthBound) && within(x.UpperBound, y.UpperBound, worthBound)
	})
}

func within(a, b corev1.ResourceList, percent float64) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool {
		v, w := x.AsApproximateFloat64(), y.AsApproximateFloat64()
		return max(v-w, w-v)*100 < percent*v || v == w
	})
}
