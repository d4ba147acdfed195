// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// slimmed is an object as the cache holds it, and it is the same when it is slimmed again.
func slimmed[T any](t *testing.T, slim func(any) (any, error), in *T) *T {
	t.Helper()
	once, err := slim(in)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(once)
	if err != nil {
		t.Fatal(err)
	}
	again, err := slim(once)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := json.Marshal(again); err != nil || string(after) != string(before) {
		t.Errorf("slimmed twice: %s (%v)\nonce: %s", after, err, before)
	}
	return again.(*T)
}

func TestSlimPod(t *testing.T) {
	t.Parallel()
	got := slimmed(t, slimPod, read[corev1.Pod](t, `{
		"metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "managedFields": [{"manager": "x"}], "ownerReferences": [{"name": "rs"}],
			"labels": {"app": "web", "koordinator.sh/qosClass": "LSR"},
			"annotations": {"scheduling.koordinator.sh/resource-status": "{}", "long": "text"}},
		"spec": {"nodeName": "n1", "priority": 9500, "overhead": {"cpu": "10m"}, "volumes": [{"name": "v"}], "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}},
			"initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
			"containers": [{"name": "app", "image": "i", "env": [{"name": "SECRET", "value": "x"}], "resources": {"limits": {"cpu": "2"},
				"requests": {"cpu": "2", "memory": "1Gi", "kubernetes.io/batch-cpu": "500", "example.com/gpu": "1"}}}]},
		"status": {"phase": "Running", "qosClass": "Burstable", "podIP": "10.0.0.1", "conditions": [{"type": "Ready"}]}}`))
	want := read[corev1.Pod](t, `{
		"metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "labels": {"koordinator.sh/qosClass": "LSR"},
			"annotations": {"scheduling.koordinator.sh/resource-status": "{}"}},
		"spec": {"nodeName": "n1", "priority": 9500, "overhead": {"cpu": "10m"}, "resources": {"requests": {"cpu": "3"}},
			"initContainers": [{"name": "", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
			"containers": [{"name": "", "resources": {"requests": {"cpu": "2", "memory": "1Gi", "kubernetes.io/batch-cpu": "500"}}}]},
		"status": {"phase": "Running", "qosClass": "Burstable"}}`)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("have %+v\nwant %+v", got, want)
	}
}

func TestSlimNode(t *testing.T) {
	t.Parallel()
	got := slimmed(t, slimNode, read[corev1.Node](t, `{
		"metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"c": "d"}, "managedFields": [{"manager": "x"}]},
		"spec": {"unschedulable": true, "podCIDR": "10.0.0.0/24"},
		"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}, "images": [{"names": ["x"]}], "conditions": [{"type": "Ready"}]}}`))
	want := read[corev1.Node](t, `{"metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"unschedulable": true},
		"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}}}`)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("have %+v\nwant %+v", got, want)
	}
}

// TestSlimMetric: what decisions go by is what it was: the canonical status of a slimmed object is that of the whole one.
func TestSlimMetric(t *testing.T) {
	t.Parallel()
	const text = `{
		"metadata": {"name": "n1", "managedFields": [{"manager": "koord-manager", "operation": "Apply"}, {"manager": "koordlet", "subresource": "status"}]},
		"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
		"status": {"updateTime": "2026-11-22T10:00:00Z",
			"nodeMetric": {"nodeUsage": {"resources": {"cpu": "5", "memory": "8Gi"}}, "usage": {"cpu": "5", "memory": "8Gi"}, "systemUsage": {"resources": {"cpu": "1"}},
				"request": {"cpu": "7"}, "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"p95": {"resources": {"cpu": "6"}}}}]},
			"podsMetric": [{"name": "a", "namespace": "x", "podUsage": {"resources": {"cpu": "2"}}, "qos": "LS", "extensions": {"koord-rt.dev/interference": {}}}],
			"podMetrics": [{"podRef": {"name": "a", "namespace": "x"}, "containers": [{"name": "c", "usage": {"cpu": "2"}}]},
				{"podRef": {"name": "b", "namespace": "x"}, "containers": [{"name": "c", "usage": {"cpu": "1"}}]}],
			"prodReclaimableMetric": {"resource": {"resources": {"cpu": "1"}}}}}`
	whole, _ := read[slov1alpha1.NodeMetric](t, text).Status.Canonical()
	slim := slimmed(t, slimMetric, read[slov1alpha1.NodeMetric](t, text))
	if len(slim.ManagedFields) != 1 || slim.ManagedFields[0].Manager != "koord-manager" || *slim.Spec.MetricCollectPolicy.ReportIntervalSeconds != 60 {
		t.Errorf("spec and who wrote it: %+v", slim)
	}
	if slim.Status.NodeMetric.AggregatedNodeUsages != nil || slim.Status.NodeMetric.Usage != nil || len(slim.Status.PodMetrics) != 1 || slim.Status.PodsMetric[0].Extensions != nil {
		t.Errorf("not slim: %+v", slim.Status)
	}
	got, _ := slim.Status.Canonical()
	amount := func(l corev1.ResourceList) string { q := l[corev1.ResourceCPU]; return q.String() }
	if amount(got.NodeMetric.NodeUsage.Resources) != amount(whole.NodeMetric.NodeUsage.Resources) ||
		amount(got.NodeMetric.SystemUsage.Resources) != amount(whole.NodeMetric.SystemUsage.Resources) || len(got.PodsMetric) != len(whole.PodsMetric) ||
		!reflect.DeepEqual(got.ProdReclaimableMetric, whole.ProdReclaimableMetric) {
		t.Errorf("have %+v\nwant %+v", got, whole)
	}
	for i := range got.PodsMetric {
		if amount(got.PodsMetric[i].PodUsage.Resources) != amount(whole.PodsMetric[i].PodUsage.Resources) || got.PodsMetric[i].Name != whole.PodsMetric[i].Name {
			t.Errorf("pod %d: %+v", i, got.PodsMetric[i])
		}
	}
	// A node that writes the documents' spelling alone is read all the same.
	seed := slimmed(t, slimMetric, &slov1alpha1.NodeMetric{Status: slov1alpha1.NodeMetricStatus{NodeMetric: &slov1alpha1.NodeMetricInfo{
		Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")},
	}}})
	if got, _ := seed.Status.Canonical(); amount(got.NodeMetric.NodeUsage.Resources) != "3" {
		t.Errorf("the documents' usage is lost: %+v", got.NodeMetric)
	}
}

func TestSlimSLO(t *testing.T) {
	t.Parallel()
	got := slimmed(t, slimSLO, read[slov1alpha1.NodeSLO](t, `{
		"metadata": {"name": "n1", "annotations": {"a": "b"}, "managedFields": [{"manager": "me"}, {"manager": "koordlet", "subresource": "status"}]},
		"spec": {"cpuBurstStrategy": {"policy": "auto"}}, "status": {"observedGeneration": 3}}`))
	if got.Status.ObservedGeneration != 0 || *got.Spec.CPUBurstStrategy.Policy != "auto" || got.Annotations["a"] != "b" || len(got.ManagedFields) != 1 ||
		!reflect.DeepEqual(got.ManagedFields[0], metav1.ManagedFieldsEntry{Manager: "me"}) {
		t.Errorf("%+v", got)
	}
}

// TestTerm: what a term of office registered is gone when it ends, and only that.
func TestTerm(t *testing.T) {
	t.Parallel()
	below := prometheus.NewRegistry()
	gauge := func() prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts{Name: "x", Help: "x"}) }
	stays := prometheus.NewGauge(prometheus.GaugeOpts{Name: "y", Help: "y"})
	if err := below.Register(stays); err != nil {
		t.Fatal(err)
	}
	first := &term{Registerer: below}
	if err := first.Register(gauge()); err != nil {
		t.Fatal(err)
	}
	if err := (&term{Registerer: below}).Register(gauge()); err == nil {
		t.Fatal("two terms at a time have one metric")
	}
	first.end()
	if err := (&term{Registerer: below}).Register(gauge()); err != nil {
		t.Errorf("the next term: %v", err)
	}
	if got, err := below.Gather(); err != nil || len(got) != 2 {
		t.Errorf("%d metrics (%v), want the one that stays and the next term's", len(got), err)
	}
}
