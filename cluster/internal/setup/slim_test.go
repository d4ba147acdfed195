// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/apitest"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
)

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

func TestSlimNode(t *testing.T) {
	t.Parallel()
	got := slimmed(t, slimNode, apitest.Document[corev1.Node](t, `{
		"metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"c": "d"}, "managedFields": [{"manager": "x"}]},
		"spec": {"unschedulable": true, "podCIDR": "10.0.0.0/24"},
		"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}, "images": [{"names": ["x"]}], 
			"conditions": [{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "True", "lastHeartbeatTime": "2026-11-22T10:00:00Z", "message": "x"}]}}`))
	want := apitest.Document[corev1.Node](t, `{"metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"unschedulable": true},
		"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"},
			"conditions": [{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "True"}]}}`)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("have %+v\nwant %+v", got, want)
	}
}

func TestSlimSLO(t *testing.T) {
	t.Parallel()
	got := slimmed(t, slimSLO, apitest.Document[slov1alpha1.NodeSLO](t, `{
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
