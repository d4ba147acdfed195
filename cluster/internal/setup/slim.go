// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
)

// slimPod keeps what cluster/slo/noderesource reads of a pod: who it is, its classes, its requests. A pod of a usual cluster is
// five to twenty kilobytes, what is kept of it less than one.
func slimPod(object any) (any, error) {
	p, is := object.(*corev1.Pod)
	if !is {
		return object, nil
	}
	out := &corev1.Pod{
		ObjectMeta: slimMeta(&p.ObjectMeta),
		Spec: corev1.PodSpec{
			NodeName: p.Spec.NodeName, Priority: p.Spec.Priority, Overhead: amounts(p.Spec.Overhead),
			Containers: slimContainers(p.Spec.Containers), InitContainers: slimContainers(p.Spec.InitContainers),
		},
		Status: corev1.PodStatus{Phase: p.Status.Phase, QOSClass: p.Status.QOSClass},
	}
	for name, value := range p.Labels {
		if strings.Contains(name, "koordinator.sh/") {
			set(&out.Labels, name, value)
		}
	}
	if status, is := p.Annotations[protocol.AnnotationResourceStatus]; is {
		set(&out.Annotations, protocol.AnnotationResourceStatus, status)
	}
	if r := p.Spec.Resources; r != nil {
		out.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts(r.Requests)}
	}
	return out, nil
}

// slimMeta is what an informer and a controller need of any object.
func slimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
}

func set(to *map[string]string, name, value string) {
	if *to == nil {
		*to = map[string]string{}
	}
	(*to)[name] = value
}

func slimContainers(in []corev1.Container) []corev1.Container {
	if len(in) == 0 {
		return nil
	}
	out := make([]corev1.Container, len(in))
	for i := range in {
		out[i] = corev1.Container{RestartPolicy: in[i].RestartPolicy, Resources: corev1.ResourceRequirements{Requests: amounts(in[i].Resources.Requests)}}
	}
	return out
}

// amounts keeps the resources that are lent out.
func amounts(in corev1.ResourceList) corev1.ResourceList {
	var out corev1.ResourceList
	for _, name := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, protocol.ResourceBatchCPU, protocol.ResourceBatchMemory,
		protocol.ResourceMidCPU, protocol.ResourceMidMemory,
	} {
		if q, is := in[name]; is {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[name] = q
		}
	}
	return out
}

// slimNode keeps labels, annotations and resources of a node: images, addresses and conditions are most of it.
func slimNode(object any) (any, error) {
	n, is := object.(*corev1.Node)
	if !is {
		return object, nil
	}
	out := &corev1.Node{
		ObjectMeta: slimMeta(&n.ObjectMeta),
		Spec:       corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable},
	}
	out.Labels, out.Annotations = n.Labels, n.Annotations
	return out, nil
}

// slimMetric keeps what nodes use now, in one spelling where both are written: percentiles are for schedulers, and containers are
// their pod's.
func slimMetric(object any) (any, error) {
	m, is := object.(*slov1alpha1.NodeMetric)
	if !is {
		return object, nil
	}
	m.ManagedFields = ofTheSpec(m.ManagedFields)
	if n := m.Status.NodeMetric; n != nil {
		n.AggregatedNodeUsages, n.AggregatedSystemUsages, n.NUMAUsages = nil, nil, nil
		n.Request, n.Limit = nil, nil
		if len(n.NodeUsage.Resources) > 0 {
			n.Usage = nil
		}
		n.NodeUsage.Devices, n.SystemUsage.Devices = nil, nil
	}
	known := make(map[slov1alpha1.PodRef]bool, len(m.Status.PodsMetric))
	for i := range m.Status.PodsMetric {
		p := &m.Status.PodsMetric[i]
		p.PodUsage.Devices, p.Extensions = nil, nil
		known[slov1alpha1.PodRef{Namespace: p.Namespace, Name: p.Name}] = true
	}
	var more []slov1alpha1.PodContainers
	for _, p := range m.Status.PodMetrics {
		if !known[p.PodRef] {
			more = append(more, p)
		}
	}
	m.Status.PodMetrics = more
	return m, nil
}

// slimSLO keeps what the manager compares its wishes with: the spec and who wrote it.
func slimSLO(object any) (any, error) {
	s, is := object.(*slov1alpha1.NodeSLO)
	if !is {
		return object, nil
	}
	s.ManagedFields = ofTheSpec(s.ManagedFields)
	s.Status = slov1alpha1.NodeSLOStatus{}
	return s, nil
}

// ofTheSpec drops what is known of the writers of subresources.
func ofTheSpec(in []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for _, e := range in {
		if e.Subresource == "" {
			out = append(out, e)
		}
	}
	return out
}
