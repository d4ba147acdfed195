// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	topologyv1alpha1 "github.com/koord-rt/koord-rt/api/topology/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
)

// TestBadInput: whatever stands in the objects, no more is lent out than the node has, and never less than nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	ahead := metav1.NewTime(now.AddDate(100, 0, 0))
	for name, c := range map[string]struct {
		change  func(*scene)
		cpu     int64  // batch-cpu
		without string // nothing is lent for this reason
	}{
		"as it is": {func(*scene) {}, 25000, ""},
		"no capacity": {func(in *scene) {
			in.Node.Status = corev1.NodeStatus{}
		}, 0, ""},
		"negative capacity": {func(in *scene) {
			in.Node.Status.Capacity = resources("cpu", "-100", "memory", "-1")
		}, 0, ""},
		"more allocatable than capacity": {func(in *scene) {
			in.Node.Status.Allocatable = resources("cpu", "9E", "memory", "9E")
		}, 25000, ""},
		"a report without status":   {func(in *scene) { in.Metric.Status = slov1alpha1.NodeMetricStatus{} }, 0, "the node has not reported"},
		"a report without the node": {func(in *scene) { in.Metric.Status.NodeMetric = nil }, 0, "the node has not reported"},
		"a report without amounts": {func(in *scene) {
			in.Metric.Status.NodeMetric, in.Metric.Status.PodsMetric = &slov1alpha1.NodeMetricInfo{}, nil
		}, 25000, ""}, // 65 − (20 + 20) asked for
		"a report of another century": {func(in *scene) { in.Metric.Status.UpdateTime = &ahead }, 0,
			"the last report is 52594560 min ahead of the time here, more than 15 min: set the node's clock"},
		"negative use": {func(in *scene) {
			in.Metric.Status.NodeMetric.SystemUsage = usage("-100", "-1")
			in.Metric.Status.PodsMetric[0].PodUsage = usage("-100", "-1")
		}, 43000, ""}, // 65 − 22
		"a pod that uses more than there can be": {func(in *scene) {
			in.Metric.Status.PodsMetric[0].PodUsage = usage("10E", "10E")
		}, 0, ""},
		"a pod that asks for more than there can be": {func(in *scene) {
			in.Metric.Status.PodsMetric = nil
			in.Pods[0].Spec.Containers[0].Resources.Requests = resources("cpu", "9E")
		}, 0, ""},
		"a pod without containers": {func(in *scene) {
			in.Metric.Status.PodsMetric, in.Pods[0].Spec.Containers = nil, nil
		}, 38000, ""}, // 65 − 7 − 20
		"annotations that mean nothing": {func(in *scene) {
			for _, key := range []string{
				protocol.AnnotationRawAllocatable, protocol.AnnotationNodeReservation, protocol.AnnotationThirdPartyAllocs,
				protocol.AnnotationNormalizationRatio, protocol.AnnotationOriginExtended, protocol.AnnotationAmplificationRatio,
			} {
				in.Node.Annotations[key] = "\xff{"
			}
		}, 25000, ""},
		"an annotation that takes minutes to read": {func(in *scene) {
			in.Node.Annotations[protocol.AnnotationRawAllocatable] = `{"cpu":"1e-99999999"}`
		}, 25000, ""},
		"a zone without resources": {func(in *scene) {
			in.Topology = &topologyv1alpha1.NodeResourceTopology{Zones: []topologyv1alpha1.Zone{{Name: "node--1"}, {}}}
		}, 25000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := example(t)
			c.change(in)
			out := in.decide()
			if out.Without != c.without || out.Again < 0 || out.Again > time.Hour {
				t.Errorf("without %q, want %q; again %v", out.Without, c.without, out.Again)
			}
			if got := out.Lent[protocol.ResourceBatchCPU]; got != c.cpu {
				t.Errorf("batch-cpu %d, want %d", got, c.cpu)
			}
			have := kept.Amounts(in.Node.Status.Capacity)
			if v := out.Lent[protocol.ResourceBatchMemory]; v < 0 || v > int64(have.Memory) {
				t.Errorf("batch-memory %d of %d", v, have.Memory)
			}
		})
	}
}

// TestReportInTheDocumentsSpelling: a NodeMetric written as the documents print it counts the same (seed-manifests.md, M7).
func TestReportInTheDocumentsSpelling(t *testing.T) {
	t.Parallel()
	in := example(t)
	want := in.decide().Lent[protocol.ResourceBatchCPU]
	s := &in.Metric.Status
	s.NodeMetric.Usage, s.NodeMetric.NodeUsage.Resources = s.NodeMetric.NodeUsage.Resources, nil
	for _, p := range s.PodsMetric {
		s.PodMetrics = append(s.PodMetrics, slov1alpha1.PodContainers{
			PodRef: slov1alpha1.PodRef{Namespace: p.Namespace, Name: p.Name}, Containers: []slov1alpha1.ContainerMetric{{Name: "main", Usage: p.PodUsage.Resources}},
		})
	}
	s.PodsMetric = nil
	if got := in.decide().Lent[protocol.ResourceBatchCPU]; got != want {
		t.Errorf("batch-cpu %d, want %d", got, want)
	}
}
