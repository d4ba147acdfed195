// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/koord-rt/koord-rt/api/protocol"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/daemon/logs"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// TestNodeChanges: what of a node is worth a look, and that a heartbeat is not.
func TestNodeChanges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"nothing":  {func(*corev1.Node) {}, false},
		"a beat":   {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, false},
		"ready":    {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, false},
		"pressure": {func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionTrue }, true},
		"capacity": {func(n *corev1.Node) { n.Status.Capacity = resources("cpu", "9") }, true},
		"a label":  {func(n *corev1.Node) { n.Labels["a"] = "b" }, true},
	} {
		in := example(t)
		under(in, corev1.NodeMemoryPressure, corev1.ConditionFalse)
		now := in.Node.DeepCopy()
		tc.change(now)
		if got := nodeChanges().Update(event.UpdateEvent{ObjectOld: in.Node, ObjectNew: now}); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestReportChanges: of a NodeMetric a new report is worth a look, not what we write of it.
func TestReportChanges(t *testing.T) {
	t.Parallel()
	at := func(minute int) *kept.NodeMetric {
		m := &slov1alpha1.NodeMetric{Status: slov1alpha1.NodeMetricStatus{UpdateTime: &metav1.Time{Time: now.Add(time.Duration(minute) * time.Minute)}}}
		return kept.NodeMetricOf(m, false)
	}
	never, first := &kept.NodeMetric{}, at(1)
	for name, tc := range map[string]struct {
		old, now *kept.NodeMetric
		want     bool
	}{
		"never and never": {never, never, false}, "its first": {never, first, true}, "its next": {first, at(2), true}, "ours": {first, at(1), false},
	} {
		if got := reportChanges().Update(event.UpdateEvent{ObjectOld: tc.old, ObjectNew: tc.now}); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestArrivals: a pod that comes to a node and that nothing may be lent from is worth a look at that node.
func TestArrivals(t *testing.T) {
	t.Parallel()
	pod := func(node string, class protocol.PriorityClass) *kept.Pod {
		return &kept.Pod{Node: node, Value: capacity.Pod{Class: class}}
	}
	ended := pod("n", protocol.PriorityProd)
	ended.Finished = true
	for name, tc := range map[string]struct {
		pod  *kept.Pod
		want bool
	}{
		"production": {pod("n", protocol.PriorityProd), true}, "of no class": {pod("n", protocol.PriorityNone), true}, "mid": {pod("n", protocol.PriorityMid), true},
		"batch": {pod("n", protocol.PriorityBatch), false}, "ended": {ended, false}, "without a node": {pod("", protocol.PriorityProd), false},
	} {
		if got := arrivals().Create(event.CreateEvent{Object: tc.pod}); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if arrivals().Create(event.CreateEvent{Object: tc.pod, IsInInitialList: true}) || arrivals().Delete(event.DeleteEvent{Object: tc.pod}) {
			t.Errorf("%s: looked at although its node is anyway", name)
		}
		if got := arrivals().Update(event.UpdateEvent{ObjectOld: pod("", protocol.PriorityProd), ObjectNew: tc.pod}); got != tc.want {
			t.Errorf("%s, bound: %v, want %v", name, got, tc.want)
		}
	}
	if same := pod("n", protocol.PriorityProd); arrivals().Update(event.UpdateEvent{ObjectOld: same, ObjectNew: same}) {
		t.Error("a pod that stays where it is")
	}
	if got := nodeOfPod(t.Context(), pod("n", protocol.PriorityProd)); len(got) != 1 || got[0].Name != "n" {
		t.Errorf("its node: %v", got)
	}
}

// objects is a cache and a client of one node.
type objects struct {
	client.Client
	pods   []*kept.Pod
	metric *kept.NodeMetric
	err    error
}

func (o *objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if n, is := into.(*corev1.Node); is && key.Name == "n" {
		n.Name = key.Name
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (o *objects) IndexPods(context.Context) error { return nil }

func (o *objects) PodsOn(context.Context, string) ([]*kept.Pod, error) { return o.pods, o.err }

func (o *objects) NodeMetric(context.Context, string) (*kept.NodeMetric, error) { return o.metric, nil }

// TestRead: pods that have ended count no more, and a cache that cannot be read is not a node without pods.
func TestRead(t *testing.T) {
	t.Parallel()
	o := &objects{pods: []*kept.Pod{{Value: capacity.Pod{Name: "x/a"}}, {Value: capacity.Pod{Name: "x/b"}, Finished: true}}}
	r := &reconciler{client: o, kept: o}
	in, err := r.read(t.Context(), "n")
	if err != nil || len(in.Pods) != 1 || in.Pods[0].Name != "x/a" || in.Report != nil {
		t.Errorf("%+v, %v", in, err)
	}
	o.metric = &kept.NodeMetric{Report: &capacity.Report{Evictions: 7}}
	if in, err := r.read(t.Context(), "n"); err != nil || in.Report.Evictions != 7 {
		t.Errorf("%+v, %v", in, err)
	}
	if in, err := r.read(t.Context(), "gone"); err != nil || in != nil {
		t.Errorf("a node that has gone: %+v, %v", in, err)
	}
	o.err = errors.New("away")
	if _, err := r.read(t.Context(), "n"); err == nil || err.Error() != "list the pods of node n: away" {
		t.Errorf("%v", err)
	}
}

// TestSuspect: since when a node's reports contradict themselves is kept until one does not.
func TestSuspect(t *testing.T) {
	t.Parallel()
	r := &reconciler{contradicts: map[string]time.Time{}}
	in := example(t)
	never, first := time.Time{}, now.Add(time.Minute)
	for i, step := range []struct {
		what string
		want time.Time
	}{{"", never}, {"x", first}, {"y", first}, {"", never}, {"x", now.Add(4 * time.Minute)}} {
		in.Now, in.Contradicts = now.Add(time.Duration(i)*time.Minute), r.contradicts["n"]
		r.suspect(t.Context(), &in.Input, &Output{Contradiction: step.what})
		if got := r.contradicts["n"]; !got.Equal(step.want) {
			t.Errorf("minute %d, %q: since %s, want %s", i, step.what, got, step.want)
		}
	}
	r.contradicts["n"], r.metrics = now, newMetrics()
	if r.forget("n"); len(r.contradicts) > 0 {
		t.Errorf("kept of a node that has gone: %v", r.contradicts)
	}
}

// TestSight: a report is known from its coming on, whatever time it tells, and the first of all may have been there for long.
func TestSight(t *testing.T) {
	t.Parallel()
	r := &reconciler{}
	at := func(hours int) *capacity.Report {
		return &capacity.Report{At: unit.Micros(now.Add(time.Duration(hours) * time.Hour).UnixMicro())}
	}
	for i, step := range []struct {
		report *capacity.Report
		since  int // the step
		came   bool
	}{{at(2), 0, false}, {at(2), 0, false}, {at(0), 2, true}, {at(0), 2, true}, {nil, 4, true}, {at(0), 5, true}} {
		since, came := r.sight("n", step.report, now.Add(time.Duration(i)*time.Minute))
		if !since.Equal(now.Add(time.Duration(step.since)*time.Minute)) || came != step.came {
			t.Errorf("step %d: since %s, came %t", i, since, came)
		}
	}
	r.metrics = newMetrics()
	r.forget("n")
	if _, came := r.sight("n", at(0), now); came {
		t.Error("kept of a node that has gone")
	}
}

// TestSilentNodes: why a node that has reported lends nothing is told once, and nothing where nobody expects it to lend.
func TestSilentNodes(t *testing.T) {
	t.Parallel()
	const why = "the last report is 120 min ahead of the time here, more than 15 min: set the node's clock"
	var told []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, text string) { told = append(told, text) }, funcr.Options{}))
	r := &reconciler{limit: logs.NewLimiter(logs.LimiterOptions{Every: time.Hour})}
	in := &Input{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	r.silent(ctx, in, &Output{Without: "the node has not reported"})
	in.Report = &capacity.Report{}
	for _, without := range []string{"", off, why, why + ", again"} {
		r.silent(ctx, in, &Output{Without: without})
	}
	if len(told) != 1 || !strings.Contains(told[0], "set the node's clock") {
		t.Errorf("told %q", told)
	}
}

// TestWeightIsTold: the weight of each node that lends, and a reason where it is not whole.
func TestWeightIsTold(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	sound, short, silent := example(t), example(t), example(t)
	under(short, corev1.NodeDiskPressure, corev1.ConditionTrue)
	silent.Metric = nil
	for name, in := range map[string]*scene{"sound": sound, "short": short, "silent": silent} {
		out := in.decide()
		m.observe(name, &out)
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP koord_rt_manager_node_lending_weight The part of the usual that is lent out of a node, in percent: 100 of a sound one. None where nothing is lent.
# TYPE koord_rt_manager_node_lending_weight gauge
koord_rt_manager_node_lending_weight{node="short"} 50
koord_rt_manager_node_lending_weight{node="sound"} 100
# HELP koord_rt_manager_node_unsound 1 for each reason why less than the usual is lent out of a node, or was while it recovers.
# TYPE koord_rt_manager_node_unsound gauge
koord_rt_manager_node_unsound{node="short",reason="disk-pressure"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "koord_rt_manager_node_lending_weight", "koord_rt_manager_node_unsound"); err != nil {
		t.Error(err)
	}
}
