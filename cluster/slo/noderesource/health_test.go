// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	topologyv1alpha1 "github.com/koord-rt/koord-rt/api/topology/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// under puts a condition on the node.
func under(in *scene, kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	in.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: kind, Status: status}}
}

// lending is colocation-config with a value of the extension.
func lending(health string) map[string]string {
	return map[string]string{config.KeyColocation: strings.TrimSuffix(on, "}") + `, "extensions": {"koord-rt.dev/lending-health": ` + health + `}}`}
}

// weight is the annotation of a node since the moment of the example.
func weight(percent, reason string) string {
	return `{"percent":` + percent + `,"reasons":["` + reason + `"],"since":"2026-11-22T12:00:00Z"}`
}

// TestHealth: what a node lends that is not sound, and what its annotation says.
func TestHealth(t *testing.T) {
	t.Parallel()
	contradictory := func(in *scene) { in.Metric.Status.PodsMetric[1].PodUsage = usage("31", "10G") } // 71 of 50
	for name, tc := range map[string]struct {
		change   func(*testing.T, *scene)
		cpu, mid int64
		says     string
		problem  string
	}{
		"sound":            {func(*testing.T, *scene) {}, 25000, 10000, "", ""},
		"memory pressure":  {func(_ *testing.T, in *scene) { under(in, corev1.NodeMemoryPressure, corev1.ConditionTrue) }, 0, 0, weight("0", "memory-pressure"), ""},
		"none any more":    {func(_ *testing.T, in *scene) { under(in, corev1.NodeMemoryPressure, corev1.ConditionFalse) }, 25000, 10000, "", ""},
		"nobody can tell":  {func(_ *testing.T, in *scene) { under(in, corev1.NodeDiskPressure, corev1.ConditionUnknown) }, 25000, 10000, "", ""},
		"disk pressure":    {func(_ *testing.T, in *scene) { under(in, corev1.NodeDiskPressure, corev1.ConditionTrue) }, 12500, 5000, weight("50", "disk-pressure"), ""},
		"process pressure": {func(_ *testing.T, in *scene) { under(in, corev1.NodePIDPressure, corev1.ConditionTrue) }, 12500, 5000, weight("50", "pid-pressure"), ""},
		"evictions": {func(_ *testing.T, in *scene) { in.Metric.Status.Evictions = &slov1alpha1.EvictionMetric{LastHour: 4} },
			18750, 7500, weight("75", "evictions"), ""},
		"contradictory since a moment ago": {func(_ *testing.T, in *scene) {
			contradictory(in)
			in.Contradicts = in.Now.Add(-time.Minute)
		}, 25000, 10000, "", ""},
		"contradictory for long": {func(_ *testing.T, in *scene) {
			contradictory(in)
			in.Contradicts = in.Now.Add(-10 * time.Minute)
		}, 12500, 5000, weight("50", "contradictory-report"), ""},
		"contradictory for long, for another manager": {func(_ *testing.T, in *scene) {
			contradictory(in)
			in.Node.Annotations[protocol.AnnotationLendingWeight] = `{"percent":50,"reasons":["contradictory-report"],"since":"2026-11-22T11:00:00Z"}`
		}, 12500, 5000, `{"percent":50,"reasons":["contradictory-report"],"since":"2026-11-22T11:00:00Z"}`, ""},
		"contradictory for long, for another manager that looks again": {func(_ *testing.T, in *scene) {
			contradictory(in)
			in.Contradicts = in.Now.Add(-time.Minute)
			in.Node.Annotations[protocol.AnnotationLendingWeight] = `{"percent":50,"reasons":["contradictory-report"],"since":"2026-11-22T11:00:00Z"}`
		}, 12500, 5000, `{"percent":50,"reasons":["contradictory-report"],"since":"2026-11-22T11:00:00Z"}`, ""},
		"it recovers": {func(_ *testing.T, in *scene) {
			in.Node.Annotations[protocol.AnnotationLendingWeight] = `{"percent":50,"reasons":["disk-pressure"],"since":"2026-11-22T11:55:00Z"}`
		}, 18750, 7500, weight("75", "disk-pressure"), ""},
		"it has recovered": {func(_ *testing.T, in *scene) {
			in.Node.Annotations[protocol.AnnotationLendingWeight] = `{"percent":75,"reasons":["disk-pressure"],"since":"2026-11-22T11:55:00Z"}`
		}, 25000, 10000, "", ""},
		"an annotation that nobody can read": {func(_ *testing.T, in *scene) { in.Node.Annotations[protocol.AnnotationLendingWeight] = "none" }, 25000, 10000, "",
			"annotation koord-rt.dev/lending-weight"},
		"other numbers": {func(t *testing.T, in *scene) {
			in.Config = strategy(t, lending(`{"memoryPressurePercent": 40, "evictionsPerHour": 9}`))
			under(in, corev1.NodeMemoryPressure, corev1.ConditionTrue)
			in.Metric.Status.Evictions = &slov1alpha1.EvictionMetric{LastHour: 9}
		}, 10000, 4000, weight("40", "memory-pressure"), ""},
		"switched off": {func(t *testing.T, in *scene) {
			in.Config = strategy(t, lending(`{"enable": false}`))
			under(in, corev1.NodeMemoryPressure, corev1.ConditionTrue)
			in.Node.Annotations[protocol.AnnotationLendingWeight] = weight("0", "memory-pressure")
		}, 25000, 10000, "", ""},
		"colocation is off": {func(t *testing.T, in *scene) {
			in.Config = strategy(t, nil)
			in.Node.Annotations[protocol.AnnotationLendingWeight] = weight("0", "memory-pressure")
		}, 0, 0, "", ""},
		"a report too old changes nothing of it": {func(_ *testing.T, in *scene) {
			in.Node.Annotations[protocol.AnnotationLendingWeight] = weight("25", "stale-report")
			in.Now = in.Now.Add(time.Hour)
		}, 0, 0, weight("25", "stale-report"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := example(t)
			tc.change(t, in)
			out := in.decide()
			apply(in.Node, out.Node)
			if out.Lent[protocol.ResourceBatchCPU] != tc.cpu || out.Lent[protocol.ResourceMidCPU] != tc.mid {
				t.Errorf("lent %v, want %d and %d", out.Lent, tc.cpu, tc.mid)
			}
			if diff := cmp.Diff(tc.says, in.Node.Annotations[protocol.AnnotationLendingWeight]); diff != "" {
				t.Error(diff)
			}
			if said := strings.Join(out.Problems, "\n"); (tc.problem == "") != (said == "") || !strings.Contains(said, tc.problem) {
				t.Errorf("problems %q", said)
			}
			if again := in.decide(); again.Node != nil {
				t.Errorf("and then once more: %s", text(t, again.Node))
			}
		})
	}
}

// TestHealthOfZones: a zone lends by its node's weight, and the resource model's short-term line knows.
func TestHealthOfZones(t *testing.T) {
	t.Parallel()
	in := example(t)
	in.Topology = &topologyv1alpha1.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"},
		Zones: []topologyv1alpha1.Zone{zone("node-0"), zone("node-1")}}
	under(in, corev1.NodeDiskPressure, corev1.ConditionTrue)
	out := in.decide()
	want := []string{"node-0: cpu 50, kubernetes.io/batch-cpu 6250, kubernetes.io/batch-memory 8250M, memory 60G",
		"node-1: cpu 50, kubernetes.io/batch-cpu 6250, kubernetes.io/batch-memory 8250M, memory 60G"}
	if diff := cmp.Diff(want, zonesText(out.Zones)); diff != "" {
		t.Error(diff)
	}
	if out.Lines == nil || out.Lines.ShortTerm.CPU != 87500 {
		t.Errorf("%+v", out.Lines)
	}
}

// TestHealthIsWrittenAtOnce: a node that gets worse does not wait for its resources' turn, and one that stays as bad costs no write.
func TestHealthIsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	in := example(t)
	apply(in.Node, in.decide().Node)
	in.Since = time.Second
	under(in, corev1.NodeDiskPressure, corev1.ConditionTrue)
	first := in.decide()
	if first.Node == nil || first.Weight.Weight != 50 {
		t.Fatalf("%+v", first)
	}
	apply(in.Node, first.Node)
	for range 60 {
		in.Now = in.Now.Add(time.Minute)
		in.Metric.Status.UpdateTime = &metav1.Time{Time: in.Now}
		if out := in.decide(); out.Node != nil {
			t.Fatalf("at %s: %s", in.Now, text(t, out.Node))
		}
	}
	under(in, corev1.NodeDiskPressure, corev1.ConditionFalse)
	writes := 0
	for range 60 {
		in.Now = in.Now.Add(time.Minute)
		in.Metric.Status.UpdateTime = &metav1.Time{Time: in.Now}
		if out := in.decide(); out.Node != nil {
			writes++
			apply(in.Node, out.Node)
		}
	}
	if writes != 2 || in.Node.Annotations[protocol.AnnotationLendingWeight] != "" {
		t.Errorf("%d writes on the way back, annotations %v", writes, in.Node.Annotations)
	}
}

// TestContradictionLasts: the first contradictory report is told, and looked at again when it has lasted.
func TestContradictionLasts(t *testing.T) {
	t.Parallel()
	in := example(t)
	in.Metric.Status.PodsMetric[1].PodUsage = usage("31", "10G")
	in.Metric.Status.UpdateTime = &metav1.Time{Time: in.Now.Add(time.Minute)} // so that its age asks for nothing
	const what = "pods, host applications and system report a use of 71 CPUs, the node one of 50 CPUs"
	out := in.decide()
	if out.Contradiction != what || out.Again != 10*time.Minute+time.Second || out.Weight.Weight != capacity.Whole {
		t.Errorf("%q, again after %s, %+v", out.Contradiction, out.Again, out.Weight)
	}
	in.Contradicts = in.Now
	in.Now, in.Metric.Status.UpdateTime = in.Now.Add(out.Again), &metav1.Time{Time: in.Now.Add(out.Again)}
	if out = in.decide(); out.Weight.Weight != 50 {
		t.Errorf("%+v", out.Weight)
	}
}

// TestReportOfTheFuture: a node whose clock is ahead, and whose agent has ended, lends less and less and then nothing, though by its own time
// its report is of now in the end.
func TestReportOfTheFuture(t *testing.T) {
	t.Parallel()
	in := example(t)
	in.Seen, in.Came = in.Now, true
	in.Metric.Status.UpdateTime = &metav1.Time{Time: in.Now.Add(14 * time.Minute)}
	for minute := range 40 {
		in.Now = in.Seen.Add(time.Duration(minute) * time.Minute)
		out := in.decide()
		apply(in.Node, out.Node)
		if minute > 15 {
			if out.Lent != nil || !strings.Contains(out.Without, "has not reported for") && !strings.Contains(out.Without, " old, more than ") {
				t.Errorf("minute %d: lent %v, %q", minute, out.Lent, out.Without)
			}
			continue
		}
		if out.Without != "" || minute >= 12 && out.Weight.Weight > 25 {
			t.Errorf("minute %d: %d%% are lent, %q", minute, out.Weight.Weight, out.Without)
		}
		if left := in.Seen.Add(15*time.Minute + time.Second).Sub(in.Now); out.Again > left {
			t.Errorf("minute %d: it is looked at again after %s, and counts for %s", minute, out.Again, left)
		}
	}
}
