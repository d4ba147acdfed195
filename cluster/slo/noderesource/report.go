// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// reportOf reads what a node has reported, in either spelling; nil where it has not.
func reportOf(m *v1alpha1.NodeMetric) *capacity.Report {
	if m == nil || m.Status.UpdateTime == nil {
		return nil
	}
	status, _ := m.Status.Canonical() // where the spellings differ the canonical one counts
	if status.NodeMetric == nil {
		return nil
	}
	used := status.NodeMetric.NodeUsage.Resources
	_, cpu := used[corev1.ResourceCPU]
	_, memory := used[corev1.ResourceMemory]
	out := &capacity.Report{
		At: instant(m.Status.UpdateTime.Time), Node: amountsOf(used), NodeOK: cpu && memory,
		System: amountsOf(status.NodeMetric.SystemUsage.Resources),
	}
	for i := range status.PodsMetric {
		p := &status.PodsMetric[i]
		out.Pods = append(out.Pods, capacity.Usage{
			Name: p.Namespace + "/" + p.Name, Class: reportedClass(p.Priority, p.QoS), Used: amountsOf(p.PodUsage.Resources),
		})
	}
	for _, a := range status.HostApplicationMetric {
		out.Hosts = append(out.Hosts, capacity.Host{Class: reportedClass(a.Priority, a.QoS), Used: amountsOf(a.Usage.Resources)})
	}
	if p := status.ProdReclaimableMetric; p != nil {
		out.ProdFree = amountsOf(p.Resource.Resources)
	}
	if p := status.ProdPeakMetric; p != nil && len(p.Resource.Resources) > 0 {
		out.ProdPeak, out.PeakOK = amountsOf(p.Resource.Resources), true
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

// instant is a time as the formulas take it.
func instant(t time.Time) unit.Micros { return unit.Micros(t.UnixMicro()) }

// span is a duration as the formulas take it.
func span(d time.Duration) unit.Micros { return unit.Micros(d.Microseconds()) }
