// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kept

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
	"github.com/koord-rt/koord-rt/policy/predict"
)

// NodeMetric is a NodeMetric with its report as values: thirty pods as the API has them are 30 kilobytes, a list of resources for each.
// A copy of it, which is what a client of the cache reads, is a NodeMetric without them.
type NodeMetric struct {
	// NodeMetric has of the status the time of the report alone.
	v1alpha1.NodeMetric
	// Report is what the node says of itself; nil where it has not.
	Report *capacity.Report
	// Pods is for the recommender, nil without it.
	Pods []PodUsage
}

// PodUsage is what a node says of a pod.
type PodUsage struct {
	Namespace, Name string
	Usage           predict.Usage
	// Containers is nil where the node does not tell them apart, or there is but one and its pod's figures are there.
	Containers []ContainerUsage
}

// ContainerUsage is what a node says of a container.
type ContainerUsage struct {
	Name  string
	Usage predict.Usage
}

// NodeMetricOf keeps of a NodeMetric its spec, who wrote that, and what nodes use now: percentiles are for schedulers. It takes over
// what m has. Pods and their containers are kept one by one if each.
func NodeMetricOf(m *v1alpha1.NodeMetric, each bool) *NodeMetric {
	out := &NodeMetric{Report: reportOf(m)}
	if each {
		out.Pods = podsOf(&m.Status)
	}
	m.TypeMeta = metav1.TypeMeta{} // the cache knows
	m.ManagedFields = OfTheSpec(m.ManagedFields)
	m.Status = v1alpha1.NodeMetricStatus{UpdateTime: m.Status.UpdateTime}
	out.NodeMetric = *m
	return out
}

// OfTheSpec drops what is known of the writers of subresources.
func OfTheSpec(in []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for _, e := range in {
		if e.Subresource == "" {
			e.Manager, e.APIVersion, e.FieldsType = Shared(e.Manager), Shared(e.APIVersion), Shared(e.FieldsType)
			out = append(out, e)
		}
	}
	return out
}

// podsOf are the pods of a report one by one: the pod's figures, and its containers' where it has several, or no figures of its own.
func podsOf(s *v1alpha1.NodeMetricStatus) []PodUsage {
	out := make([]PodUsage, 0, len(s.PodsMetric))
	at := make(map[v1alpha1.PodRef]int, len(s.PodsMetric))
	for i := range s.PodsMetric {
		p := &s.PodsMetric[i]
		at[v1alpha1.PodRef{Namespace: p.Namespace, Name: p.Name}] = len(out)
		out = append(out, PodUsage{Namespace: Shared(p.Namespace), Name: p.Name, Usage: figures(p.PodUsage.Resources)})
	}
	for i := range s.PodMetrics {
		p := &s.PodMetrics[i]
		j, known := at[p.PodRef]
		switch {
		case known && len(p.Containers) < 2:
			continue
		case !known:
			j = len(out)
			out = append(out, PodUsage{Namespace: Shared(p.PodRef.Namespace), Name: p.PodRef.Name})
		}
		if n := len(p.Containers); n > 0 {
			out[j].Containers = make([]ContainerUsage, 0, n)
		}
		for k := range p.Containers {
			out[j].Containers = append(out[j].Containers, ContainerUsage{Name: Shared(p.Containers[k].Name), Usage: figures(p.Containers[k].Usage)})
		}
	}
	return out
}

// figures are those of a report; what is not in it was not measured.
func figures(l corev1.ResourceList) (out predict.Usage) {
	if q, ok := l[corev1.ResourceCPU]; ok {
		out.CPU.V, out.CPU.OK = q.AsApproximateFloat64(), true
	}
	if q, ok := l[corev1.ResourceMemory]; ok {
		out.Memory.V, out.Memory.OK = q.AsApproximateFloat64(), true
	}
	return out
}

// reportOf reads what a node has reported, in either spelling; nil where it has not.
func reportOf(m *v1alpha1.NodeMetric) *capacity.Report {
	if m.Status.UpdateTime == nil {
		return nil
	}
	status, _ := m.Status.Canonical() // the API server refuses a report in which they differ
	if status.NodeMetric == nil {
		return nil
	}
	used := status.NodeMetric.NodeUsage.Resources
	_, cpu := used[corev1.ResourceCPU]
	_, memory := used[corev1.ResourceMemory]
	out := &capacity.Report{
		At: unit.Micros(m.Status.UpdateTime.UnixMicro()), Node: Amounts(used), NodeOK: cpu && memory,
		System: Amounts(status.NodeMetric.SystemUsage.Resources),
	}
	if n := len(status.PodsMetric); n > 0 {
		out.Pods = make([]capacity.Usage, 0, n)
	}
	for i := range status.PodsMetric {
		p := &status.PodsMetric[i]
		out.Pods = append(out.Pods, capacity.Usage{
			Name: p.Namespace + "/" + p.Name, Class: reportedClass(p.Priority, p.QoS), Used: Amounts(p.PodUsage.Resources),
		})
	}
	for _, a := range status.HostApplicationMetric {
		out.Hosts = append(out.Hosts, capacity.Host{Class: reportedClass(a.Priority, a.QoS), Used: Amounts(a.Usage.Resources)})
	}
	if e := status.Evictions; e != nil {
		out.Evictions = max(e.LastHour, 0)
	}
	if p := status.ProdReclaimableMetric; p != nil {
		out.ProdFree = Amounts(p.Resource.Resources)
	}
	if p := status.ProdPeakMetric; p != nil && len(p.Resource.Resources) > 0 {
		out.ProdPeak, out.PeakOK = Amounts(p.Resource.Resources), true
	}
	return out
}

// reportedClass is the class that a report names, else that of the QoS class it names.
func reportedClass(priority, qos string) protocol.PriorityClass {
	if class, _ := protocol.ParsePriorityClass(priority); class != protocol.PriorityNone {
		return class
	}
	q, _ := protocol.ParseQoS(qos) // an unknown word is no class, which counts as production's
	return q.DefaultPriorityClass()
}
