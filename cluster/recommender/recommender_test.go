// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package recommender

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/koord-rt/koord-rt/api/analysis/v1alpha1"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
)

func (b *bench) says(t *testing.T, name string, containers, reasons []string) {
	t.Helper()
	if c, r := b.told(name); !reflect.DeepEqual(c, containers) || !reflect.DeepEqual(r, reasons) {
		t.Errorf("%s says %q, %q\nwant %q, %q", name, c, r, containers, reasons)
	}
}

// TestDeployment: what is recommended for the pods of a Deployment, from the first report to the second leader. The amounts are those of
// the worked example of policy/recommend: 1 core and 1 GiB, an hour long.
func TestDeployment(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recommendation("web", "apps/v1", "Deployment", "web")
	b.pod("web-1", "n1", "ReplicaSet", "web-abc", "1", "1Gi", "app")
	b.pod("other-1", "n1", "ReplicaSet", "other-abc", "7", "7Gi", "app")
	b.pod("alone", "n1", "", "", "7", "7Gi", "app")
	b.owned("ReplicaSet", "web-abc", "apps/v1", "Deployment", "web")
	b.owned("ReplicaSet", "other-abc", "apps/v1", "Deployment", "other")
	b.run(t, 60)
	b.says(t, "web", nil, []string{"Measured", "NotEnoughHistory"})
	if len(b.applied) != 1 {
		t.Errorf("%d writes in an hour in which nothing was known: %q", len(b.applied), b.applied)
	}
	b.run(t, 1)
	hour := []string{"app 1192m 1136m..29779m 1204Mi 1148Mi..30094Mi"}
	b.says(t, "web", hour, []string{"Measured", "Provided"})
	if want := []string{"ReplicaSet shop/web-abc", "ReplicaSet shop/other-abc"}; !slices.Equal(b.asked, want) {
		t.Errorf("asked %q in 61 passes, want %q", b.asked, want)
	}
	// The bounds come closer, written every ten minutes at most; a day later by less than is worth it.
	b.applied = nil
	b.run(t, 24*60)
	if n := len(b.applied); n < 20 || n > 24*6 {
		t.Errorf("%d writes in a day", n)
	}
	for b.applied = nil; len(b.applied) == 0; {
		b.run(t, 1)
	}
	day, _ := b.told("web")
	// The next leader goes on with what was written last.
	b.restart()
	b.applied = nil
	b.run(t, 5)
	b.says(t, "web", day, []string{"Measured", "Provided"})
	if len(b.applied) != 0 {
		t.Errorf("a new leader writes %q", b.applied)
	}
	// Another target is another history.
	b.recs[0].Spec.Target.Workload.Name, b.recs[0].Generation = "other", 2
	b.run(t, 61)
	b.says(t, "web", []string{"app 8262m 7879m..206532m 8306Mi 7922Mi..207647Mi"}, []string{"Measured", "Provided"})
}

// TestTargets: pods are those of their owner, of its owner, or of a selector.
func TestTargets(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, w := range map[string][3]string{
		"deployment": {"", "Deployment", "web"}, "replicaset": {"apps/v1", "ReplicaSet", "web-abc"}, "job": {"batch/v1", "Job", "night-1"},
		"cronjob": {"batch/v1", "CronJob", "night"}, "cloneset": {"apps.kruise.io/v1beta1", "CloneSet", "clone"}, "rollout": {"argoproj.io/v1alpha1", "Rollout", "roll"},
		"pod": {"v1", "Pod", "alone"}, "elsewhere": {"example.com/v1", "Deployment", "web"}, "set": {"", "StatefulSet", "db"},
	} {
		b.recommendation(name, w[0], w[1], w[2])
	}
	selector := func(name string, s *metav1.LabelSelector) {
		b.recommendation(name, "", "", "")
		b.recs[len(b.recs)-1].Spec.Target = v1alpha1.RecommendationTarget{Type: v1alpha1.TargetPodSelector, PodSelector: s}
	}
	selector("selector", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}})
	selector("wrong", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}})
	b.labelled["shop?app=web"] = []types.UID{"pod-web-1", "pod-alone"}
	b.pod("web-1", "n1", "ReplicaSet", "web-abc", "1", "1Gi", "a")
	b.pod("night-1-x", "n1", "Job", "night-1", "1", "1Gi", "b")
	b.pod("clone-x", "n1", "CloneSet", "clone", "1", "1Gi", "c")
	b.pod("roll-x", "n1", "ReplicaSet", "roll-1", "1", "1Gi", "d")
	b.pod("alone", "n1", "", "", "1", "1Gi", "e")
	b.owned("ReplicaSet", "web-abc", "apps/v1", "Deployment", "web")
	b.owned("ReplicaSet", "roll-1", "argoproj.io/v1alpha1", "Rollout", "roll")
	b.owned("Job", "night-1", "batch/v1", "CronJob", "night")
	b.owned("StatefulSet", "db", "", "", "")
	b.run(t, 70)
	got := map[string]string{}
	for _, r := range b.recs {
		containers, reasons := b.told(r.Name)
		for i, c := range containers {
			containers[i], _, _ = strings.Cut(c, " ")
		}
		got[r.Name] = strings.Join(append(containers, reasons[0]), " ")
	}
	want := map[string]string{
		"deployment": "a Measured", "replicaset": "a Measured", "job": "b Measured", "cronjob": "b Measured", "cloneset": "c Measured", "rollout": "d Measured",
		"pod": "e Measured", "elsewhere": "NoPods", "set": "NoPods", "selector": "a e Measured", "wrong": "InvalidTarget",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("have %q\nwant %q", got, want)
	}
	count := map[string]int{}
	for _, what := range b.asked {
		count[what]++
	}
	// Owners once; a selector, and a workload without pods, every five minutes.
	for what, n := range map[string]int{"ReplicaSet shop/web-abc": 1, "ReplicaSet shop/roll-1": 1, "Job shop/night-1": 1, "shop?app=web": 14, "StatefulSet shop/db": 14} {
		if count[what] != n {
			t.Errorf("%s was asked for %d times, want %d", what, count[what], n)
		}
	}
	if len(count) != 5 {
		t.Errorf("asked for %v", count)
	}
	b.recs = b.recs[:1]
	b.run(t, 1)
	if len(b.owners.chosen) != 0 {
		t.Errorf("selectors of Recommendations that have gone: %v", b.owners.chosen)
	}
}

// TestConditions: who looks at the object learns why there is nothing.
func TestConditions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recommendation("web", "apps/v1", "StatefulSet", "web")
	b.run(t, 1)
	b.says(t, "web", nil, []string{"WorkloadNotFound", "NotEnoughHistory"})
	b.owned("StatefulSet", "web", "", "", "")
	b.run(t, 6)
	b.says(t, "web", nil, []string{"NoPods", "NotEnoughHistory"})
	b.pod("web-0", "n1", "StatefulSet", "web", "1", "1Gi", "app")
	b.run(t, 70)
	b.says(t, "web", []string{"app 1192m 1136m..29779m 1204Mi 1148Mi..30094Mi"}, []string{"Measured", "Provided"})
	// The node falls silent: a moment is nothing, ten minutes are.
	silent := b.world.metrics
	b.world.metrics = nil
	b.run(t, 9)
	b.says(t, "web", []string{"app 1192m 1136m..29779m 1204Mi 1148Mi..30094Mi"}, []string{"Measured", "Provided"})
	b.run(t, 1)
	if c, r := b.told("web"); len(c) != 1 || !reflect.DeepEqual(r, []string{"NotMeasured", "Provided"}) {
		t.Errorf("%q, %q", c, r)
	}
	// It is looked for at once when its pods have gone.
	pods := b.pods
	b.world.metrics, b.pods = silent, nil
	b.run(t, 1)
	b.pods = pods
	b.run(t, 1)
	b.pods = nil
	delete(b.live, "StatefulSet shop/web")
	b.run(t, 1)
	if c, r := b.told("web"); len(c) != 1 || !reflect.DeepEqual(r, []string{"WorkloadNotFound", "Provided"}) {
		t.Errorf("%q, %q", c, r)
	}
	b.owned("StatefulSet", "web", "", "", "")
	b.pods = pods
	b.run(t, 1)
	// No pod runs any more: what is known of them stands.
	b.world.metrics, b.pods = silent, nil
	b.run(t, 1)
	if c, r := b.told("web"); len(c) != 1 || !reflect.DeepEqual(r, []string{"NoPods", "Provided"}) {
		t.Errorf("%q, %q", c, r)
	}
}

// TestContainers: of a pod with several containers each is learned where the node tells them apart, for which it is asked; what a node
// asks no longer is taken back, what somebody else has said stays.
func TestContainers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recommendation("web", "", "StatefulSet", "web")
	b.pod("web-0", "n1", "StatefulSet", "web", "1100m", "2Gi", "app", "side")
	b.pod("web-1", "n2", "StatefulSet", "web", "1100m", "2Gi", "app", "side")
	b.pod("single", "n3", "StatefulSet", "other", "1", "1Gi", "app")
	no := false
	b.metric("n2").Spec.MetricCollectPolicy = &slov1alpha1.CollectPolicy{ContainerMetrics: &no}
	b.run(t, 1)
	b.says(t, "web", nil, []string{"NoContainerFigures", "NotEnoughHistory"})
	want := []string{"shop/web", `koord-manager-recommender {"apiVersion":"slo.koordinator.sh/v1alpha1","kind":"NodeMetric","metadata":{"name":"n1","uid":"uid-n1"},` +
		`"spec":{"metricCollectPolicy":{"containerMetrics":true}}}`}
	if !slices.Equal(b.applied, want) {
		t.Errorf("applied %q\nwant %q", b.applied, want)
	}
	yes := true
	m := b.metric("n1")
	m.Spec.MetricCollectPolicy = &slov1alpha1.CollectPolicy{ContainerMetrics: &yes}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: wishManager, Operation: metav1.ManagedFieldsOperationApply}}
	m.Status.PodMetrics = []slov1alpha1.PodContainers{{
		PodRef:     slov1alpha1.PodRef{Namespace: "shop", Name: "web-0"},
		Containers: []slov1alpha1.ContainerMetric{{Name: "app", Usage: use("1", "1Gi")}, {Name: "side", Usage: use("100m", "1Gi")}, {Name: "gone", Usage: use("9", "9Gi")}},
	}}
	b.applied = nil
	b.run(t, 61)
	b.says(t, "web", []string{"app 1192m 1136m..29779m 1204Mi 1148Mi..30094Mi", "side 124m 119m..3098m 1204Mi 1148Mi..30094Mi"}, []string{"Measured", "Provided"})
	if !slices.Equal(slices.Compact(b.applied), []string{"shop/web"}) {
		t.Errorf("applied %q", b.applied)
	}
	b.applied, b.pods = nil, nil
	b.run(t, 1)
	if want := `koord-manager-recommender {"apiVersion":"slo.koordinator.sh/v1alpha1","kind":"NodeMetric","metadata":{"name":"n1","uid":"uid-n1"}}`; !slices.Contains(b.applied, want) {
		t.Errorf("applied %q, want %s", b.applied, want)
	}
}

// TestReports: what is old, of the future, known already, of another pod or not measured trains nothing.
func TestReports(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*bench)
		want  float64
	}{
		"as it should be": {func(*bench) {}, 2},
		"old": {func(b *bench) {
			at := metav1.NewTime(b.now.Add(-11 * time.Minute))
			b.metric("n1").Status.UpdateTime = &at
		}, 0},
		"of the future": {func(b *bench) {
			at := metav1.NewTime(b.now.Add(2 * time.Minute))
			b.metric("n1").Status.UpdateTime = &at
		}, 0},
		"no time":                               {func(b *bench) { b.metric("n1").Status.UpdateTime = nil }, 0},
		"known already":                         {func(b *bench) { b.reports["n1"] = b.now }, 0},
		"of a pod of this name on another node": {func(b *bench) { b.pods[0].Spec.NodeName = "n2" }, 0},
		"without memory":                        {func(b *bench) { delete(b.metric("n1").Status.PodsMetric[0].PodUsage.Resources, corev1.ResourceMemory) }, 1},
	} {
		b := newBench(t)
		b.recommendation("web", "", "StatefulSet", "web")
		b.pod("web-0", "n1", "StatefulSet", "web", "1", "1Gi", "app")
		at := metav1.NewTime(b.now)
		b.metric("n1").Status.UpdateTime = &at
		c.spoil(b)
		if err := b.pass(t.Context(), b.now); err != nil {
			t.Fatal(name, err)
		}
		learned := 0.0
		for _, h := range b.entries[types.NamespacedName{Namespace: "shop", Name: "web"}].model.Histories() {
			learned += h.CPU.Samples + h.Memory.Samples
		}
		if learned != c.want {
			t.Errorf("%s: %g figures learned, want %g", name, learned, c.want)
		}
	}
}

// TestOwners: another object of an owner's name is not that owner, and what is too much for one pass is done by the next ones, without
// a word about pods that may be there.
func TestOwners(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recommendation("web", "", "Deployment", "web")
	b.pod("web-1", "n1", "ReplicaSet", "web-abc", "1", "1Gi", "app")
	b.owned("ReplicaSet", "web-abc", "apps/v1", "Deployment", "web")
	again := b.live["ReplicaSet shop/web-abc"]
	again.UID = "made anew"
	b.live["ReplicaSet shop/web-abc"] = again
	b.owned("Deployment", "web", "", "", "")
	b.run(t, 1)
	b.says(t, "web", nil, []string{"NoPods", "NotEnoughHistory"})

	b = newBench(t)
	b.recommendation("last", "", "Deployment", "last")
	for i := range budget {
		b.pod(fmt.Sprintf("p%d", i), "n1", "ReplicaSet", fmt.Sprintf("rs%d", i), "1", "1Gi", "app")
	}
	b.pod("last-1", "n1", "ReplicaSet", "last-abc", "1", "1Gi", "app")
	b.owned("ReplicaSet", "last-abc", "apps/v1", "Deployment", "last")
	b.run(t, 1)
	b.says(t, "last", nil, []string{"NotEnoughHistory"})
	if len(b.asked) != budget {
		t.Errorf("%d owners asked for in one pass", len(b.asked))
	}
	b.run(t, 1)
	b.says(t, "last", nil, []string{"Measured", "NotEnoughHistory"})
}

// TestAdopted: what nobody owned is asked for again after an hour: a Deployment that is made anew adopts the ReplicaSets of its name.
func TestAdopted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recommendation("web", "", "Deployment", "web")
	b.pod("web-1", "n1", "ReplicaSet", "web-abc", "1", "1Gi", "app")
	b.owned("ReplicaSet", "web-abc", "", "", "")
	b.owned("Deployment", "web", "", "", "")
	b.run(t, 1)
	b.owned("ReplicaSet", "web-abc", "apps/v1", "Deployment", "web")
	b.run(t, 59)
	b.says(t, "web", nil, []string{"NoPods", "NotEnoughHistory"})
	b.run(t, 1)
	b.says(t, "web", nil, []string{"Measured", "NotEnoughHistory"})
	asked := len(b.asked)
	if b.run(t, 90); len(b.asked) != asked {
		t.Errorf("asked again for an owner that is known: %q", b.asked[asked:])
	}
}

// TestMoved: a pod that has moved is in the reports of two nodes; the one that it is on counts.
func TestMoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.recommendation("db", "", "StatefulSet", "db")
	for _, node := range []string{"n1", "n2", "n3"} { // in whatever order they come
		b.metric(node).Status.PodsMetric = []slov1alpha1.PodMetric{{Namespace: "shop", Name: "db-0", PodUsage: slov1alpha1.ResourceMap{Resources: use("9", "9Gi")}}}
	}
	b.metric("n2").Status.PodsMetric = nil
	b.pod("db-0", "n2", "StatefulSet", "db", "1", "1Gi", "app")
	b.run(t, 1)
	b.says(t, "db", nil, []string{"Measured", "NotEnoughHistory"})
}
