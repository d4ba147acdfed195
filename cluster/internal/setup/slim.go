// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	sigsv1alpha1 "github.com/koord-rt/koord-rt/api/schedulingsigs/v1alpha1"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
)

// slimPod keeps of a pod what cluster/internal/kept has; of an owned one what the recommender reads too.
func slimPod(owned bool) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if p, is := object.(*corev1.Pod); is {
			return kept.PodOf(p, owned), nil
		}
		return object, nil
	}
}

// slimMetric keeps of a NodeMetric what cluster/internal/kept has; with its pods one by one for the recommender.
func slimMetric(each bool) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if m, is := object.(*slov1alpha1.NodeMetric); is {
			return kept.NodeMetricOf(m, each), nil
		}
		return object, nil
	}
}

// slimMeta is what an informer and a controller need of any object.
func slimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
}

// slimNode keeps labels, annotations, resources, readiness and pressures of a node: images, addresses and the other conditions are most of it.
func slimNode(object any) (any, error) {
	n, is := object.(*corev1.Node)
	if !is {
		return object, nil
	}
	out := &corev1.Node{
		ObjectMeta: slimMeta(&n.ObjectMeta),
		Spec:       corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable, Conditions: pressures(n.Status.Conditions)},
	}
	out.Labels, out.Annotations = shared(n.Labels, kept.Shared), shared(n.Annotations, func(value string) string { return value })
	return out, nil
}

// shared has the keys of in, which all nodes have, once in memory, and values as value has them.
func shared(in map[string]string, value func(string) string) map[string]string {
	if in == nil {
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		out[kept.Shared(k)] = value(v)
	}
	return out
}

// pressures keeps whether the kubelet is ready, and what it says it is short of, without when it last said so.
func pressures(in []corev1.NodeCondition) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for i := range in {
		switch c := &in[i]; c.Type {
		case corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
			out = append(out, corev1.NodeCondition{Type: c.Type, Status: c.Status})
		default:
		}
	}
	return out
}

// slimQuota keeps what the manager compares a root quota or a mirror with, and who wrote its spec.
func slimQuota(object any) (any, error) {
	q, is := object.(*sigsv1alpha1.ElasticQuota)
	if !is {
		return object, nil
	}
	q.ManagedFields = kept.OfTheSpec(q.ManagedFields)
	return q, nil
}

// slimSLO keeps what the manager compares its wishes with: the spec and who wrote it.
func slimSLO(object any) (any, error) {
	s, is := object.(*slov1alpha1.NodeSLO)
	if !is {
		return object, nil
	}
	s.ManagedFields = kept.OfTheSpec(s.ManagedFields)
	s.Status = slov1alpha1.NodeSLOStatus{}
	return s, nil
}
