// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kept

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/koord-rt/koord-rt/api/apitest"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
	"github.com/koord-rt/koord-rt/policy/predict"
)

const podText = `{
	"metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "resourceVersion": "7", "labels": {"koordinator.sh/qosClass": "LSR"},
		"annotations": {"scheduling.koordinator.sh/resource-status": "{\"numaNodeResources\":[{\"node\":1}]}"},
		"ownerReferences": [{"name": "other", "kind": "X", "uid": "x"}, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true}]},
	"spec": {"nodeName": "n1", "initContainers": [{"name": "setup"}, {"name": "side", "restartPolicy": "Always"}],
		"containers": [{"name": "app", "resources": {"requests": {"cpu": "2", "memory": "1Ki"}}}, {"name": "b"}]},
	"status": {"phase": "Running", "qosClass": "Burstable"}}`

func TestPodOf(t *testing.T) {
	t.Parallel()
	got := PodOf(apitest.Document[corev1.Pod](t, podText), false)
	want := &Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", ResourceVersion: "7"}, Node: "n1",
		Value: capacity.Pod{Name: "shop/web-1", Class: protocol.PriorityProd, QoS: protocol.QoSLSR, Request: capacity.Amounts{CPU: 2000, Memory: 1024}, Zones: []int{1}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Pod{}), cmp.Comparer(func(a, b unique.Handle[Owner]) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if _, is := got.Owner(); is || got.Containers() != nil {
		t.Errorf("for the recommender only: %+v", got)
	}
	owned := PodOf(apitest.Document[corev1.Pod](t, podText), true)
	if o, is := owned.Owner(); !is || o != (Owner{"apps/v1", "ReplicaSet", "web", "rs"}) || owned.UID != "u" || !slices.Equal(owned.Containers(), []string{"app", "b", "side"}) {
		t.Errorf("%+v, %q", o, owned.Containers())
	}
	done := apitest.Document[corev1.Pod](t, podText)
	done.Status.Phase, done.OwnerReferences = corev1.PodFailed, nil
	if p := PodOf(done, true); !p.Finished || got.Finished {
		t.Errorf("a pod that failed: %+v", p)
	} else if _, is := p.Owner(); is {
		t.Errorf("a pod without an owner: %+v", p)
	}
	twin := owned.DeepCopyObject().(*Pod)
	twin.Value.Zones[0] = 5
	if owned.Value.Zones[0] != 1 || twin.Name != "web-1" {
		t.Errorf("copy %+v of %+v", twin, owned)
	}
}

const metricText = `{
	"metadata": {"name": "n1", "uid": "u", "managedFields": [{"manager": "koord-manager", "operation": "Apply"}, {"manager": "koordlet", "subresource": "status"}]},
	"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
	"status": {"updateTime": "2026-11-22T10:00:00Z",
		"nodeMetric": {"nodeUsage": {"resources": {"cpu": "5", "memory": "8Ki"}}, "usage": {"cpu": "5", "memory": "8Ki"}, "systemUsage": {"resources": {"cpu": "1"}},
			"request": {"cpu": "7"}, "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"p95": {"resources": {"cpu": "6"}}}}]},
		"podsMetric": [{"name": "a", "namespace": "x", "podUsage": {"resources": {"cpu": "2"}}, "qos": "BE"}, {"name": "b", "namespace": "x", "podUsage": {"resources": {"cpu": "3"}}}],
		"podMetrics": [{"podRef": {"name": "a", "namespace": "x"}, "containers": [{"name": "c", "usage": {"cpu": "2"}}]},
			{"podRef": {"name": "b", "namespace": "x"}, "containers": [{"name": "c", "usage": {"cpu": "1"}}, {"name": "d", "usage": {"cpu": "2", "memory": "3"}}]},
			{"podRef": {"name": "c", "namespace": "x"}, "containers": [{"name": "c", "usage": {"cpu": "1"}}]}, {"podRef": {"name": "d", "namespace": "x"}}],
		"hostApplicationMetric": [{"name": "h", "usage": {"resources": {"cpu": "1"}}, "qos": "BE"}], "evictions": {"lastHour": 2},
		"prodReclaimableMetric": {"resource": {"resources": {"cpu": "1"}}}, "prodPeakMetric": {"resource": {"resources": {"cpu": "4"}}}}}`

func TestNodeMetricOf(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	cpu := func(n int) capacity.Amounts { return capacity.Amounts{CPU: unit.MilliCPU(1000 * n)} }
	got := NodeMetricOf(apitest.Document[v1alpha1.NodeMetric](t, metricText), false)
	want := &capacity.Report{
		At: unit.Micros(at.UnixMicro()), Node: capacity.Amounts{CPU: 5000, Memory: 8 << 10}, NodeOK: true, System: cpu(1),
		Pods: []capacity.Usage{
			{Name: "x/a", Class: protocol.PriorityBatch, Used: cpu(2)}, {Name: "x/b", Used: cpu(3)},
			{Name: "x/c", Used: cpu(1)}, {Name: "x/d"},
		},
		Hosts: []capacity.Host{{Class: protocol.PriorityBatch, Used: cpu(1)}}, ProdFree: cpu(1), ProdPeak: cpu(4), PeakOK: true, Evictions: 2,
	}
	if diff := cmp.Diff(want, got.Report); diff != "" {
		t.Error(diff)
	}
	// The rest is what is compared with wishes, and a copy is an object of the API.
	twin, is := got.DeepCopyObject().(*v1alpha1.NodeMetric)
	if !is || twin.Name != "n1" || *twin.Spec.MetricCollectPolicy.ReportIntervalSeconds != 60 || len(twin.ManagedFields) != 1 || twin.ManagedFields[0].Manager != "koord-manager" ||
		!twin.Status.UpdateTime.Time.Equal(at) || twin.Status.NodeMetric != nil || twin.Status.PodsMetric != nil || got.Pods != nil {
		t.Errorf("%+v", got)
	}
	for name, m := range map[string]*v1alpha1.NodeMetric{
		"has not reported": {}, "reported nothing of itself": {Status: v1alpha1.NodeMetricStatus{UpdateTime: &metav1.Time{Time: at}}},
	} {
		if r := NodeMetricOf(m, true).Report; r != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestPodsOneByOne(t *testing.T) {
	t.Parallel()
	cpu := func(n float64) (u predict.Usage) {
		u.CPU.V, u.CPU.OK = n, true
		return u
	}
	both := cpu(2)
	both.Memory.V, both.Memory.OK = 3, true
	want := []PodUsage{
		{Namespace: "x", Name: "a", Usage: cpu(2)},
		{Namespace: "x", Name: "b", Usage: cpu(3), Containers: []ContainerUsage{{"c", cpu(1)}, {"d", both}}},
		{Namespace: "x", Name: "c", Containers: []ContainerUsage{{"c", cpu(1)}}}, {Namespace: "x", Name: "d"},
	}
	if diff := cmp.Diff(want, NodeMetricOf(apitest.Document[v1alpha1.NodeMetric](t, metricText), true).Pods); diff != "" {
		t.Error(diff)
	}
}

// one is a cache of one kind.
type one struct {
	toolscache.SharedIndexInformer
	err error
}

func (o one) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return o.SharedIndexInformer, o.err
}

func newOne() one {
	return one{SharedIndexInformer: toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &corev1.Pod{}, 0, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})}
}

func TestCache(t *testing.T) {
	t.Parallel()
	ctx, from := t.Context(), newOne()
	c := NewCache(from)
	if err := c.IndexPods(ctx); err != nil {
		t.Fatal(err)
	}
	for name, node := range map[string]string{"a": "n1", "b": "n2", "c": "n1"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
		if err := from.GetIndexer().Add(PodOf(p, false)); err != nil {
			t.Fatal(err)
		}
	}
	names := func(pods []*Pod, err error) string {
		if err != nil {
			return err.Error()
		}
		var out []string
		for _, p := range pods {
			out = append(out, p.Name)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	if got := names(c.PodsOn(ctx, "n1")); got != "a c" {
		t.Errorf("of the node: %s", got)
	}
	if all, none := names(c.PodsIn(ctx, "x")), names(c.PodsIn(ctx, "y")); all != "a b c" || none != "" {
		t.Errorf("of namespaces: %q, %q", all, none)
	}
	// A cache that keeps objects of the API is a mistake, which is told and not taken for a cluster without pods.
	if err := from.GetIndexer().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "raw"}}); err != nil {
		t.Fatal(err)
	}
	if got := names(c.PodsIn(ctx, "x")); !strings.Contains(got, "it holds *v1.Pod, want *kept.Pod") {
		t.Errorf("a whole pod: %s", got)
	}
	from.err = errors.New("away")
	if got := names(NewCache(from).PodsOn(ctx, "n1")); !strings.HasSuffix(got, "away") {
		t.Errorf("no informer: %s", got)
	}
}

func TestCacheOfNodeMetrics(t *testing.T) {
	t.Parallel()
	ctx, from := t.Context(), newOne()
	c := NewCache(from)
	if m, err := c.NodeMetric(ctx, "n1"); m != nil || err != nil {
		t.Errorf("none: %+v, %v", m, err)
	}
	if err := from.GetIndexer().Add(NodeMetricOf(apitest.Document[v1alpha1.NodeMetric](t, metricText), false)); err != nil {
		t.Fatal(err)
	}
	if m, err := c.NodeMetric(ctx, "n1"); err != nil || m == nil || m.Report.Evictions != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	if all, err := c.NodeMetrics(ctx); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}
