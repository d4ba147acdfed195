// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// podsOf reads the pods of a node that have not finished.
func podsOf(pods []corev1.Pod) []capacity.Pod {
	out := make([]capacity.Pod, 0, len(pods))
	for i := range pods {
		if p := &pods[i]; !finished(p) {
			out = append(out, podOf(p))
		}
	}
	return out
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func podOf(p *corev1.Pod) capacity.Pod {
	qos := qosOf(p)
	return capacity.Pod{
		Name: p.Namespace + "/" + p.Name, Class: classOf(p, qos), QoS: qos, Request: requestOf(p),
		Zones: memoryNodesOf(p.Annotations[protocol.AnnotationResourceStatus]),
	}
}

// qosOf is the label's class, else the default of Kubernetes' class.
func qosOf(p *corev1.Pod) protocol.QoS {
	if q, ok := protocol.ParseQoS(p.Labels[protocol.LabelQoSClass]); ok && q != protocol.QoSNone {
		return q
	}
	switch p.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		return protocol.KubeGuaranteed.DefaultQoS()
	case corev1.PodQOSBestEffort:
		return protocol.KubeBestEffort.DefaultQoS()
	default:
		return protocol.KubeBurstable.DefaultQoS()
	}
}

// classOf is the pod's class, else that of its QoS class. A priority above all bands (the documents' high-priority) goes
// before everybody, whatever the QoS class.
func classOf(p *corev1.Pod, qos protocol.QoS) protocol.PriorityClass {
	if class := protocol.PodPriorityClass(p.Labels, p.Spec.Priority); class != protocol.PriorityNone {
		return class
	}
	if _, high, ok := protocol.PriorityProd.Band(); ok && p.Spec.Priority != nil && *p.Spec.Priority > high {
		return protocol.PriorityProd
	}
	return qos.DefaultPriorityClass()
}

// memoryNodesOf are the memory nodes that the scheduler gave; what cannot be read gives none.
func memoryNodesOf(text string) []int {
	if text == "" {
		return nil
	}
	status, err := protocol.ParseResourceStatus(text)
	if err != nil {
		return nil // the node and the scheduler report it; here the pod is spread over all
	}
	return status.NUMANodes
}

// requestOf is what the scheduler books (KEP-753, KEP-2837), batch and mid amounts as CPU and memory:
//
//	running  = Σ containers + Σ sidecars
//	starting = max over init containers i of (i + Σ sidecars before i)
//	pod      = max(running, starting), CPU and memory replaced by the pod's own where given, + overhead
//
// Example: app 500m, sidecar 100m, init 1000m behind the sidecar: max(600m, 1100m) = 1100m.
func requestOf(p *corev1.Pod) capacity.Amounts {
	var running, sidecars, starting capacity.Amounts
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		own := folded(c.Resources.Requests)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = sidecars.Plus(own)
			own = capacity.Amounts{}
		}
		starting = starting.Max(sidecars.Plus(own))
	}
	for i := range p.Spec.Containers {
		running = running.Plus(folded(p.Spec.Containers[i].Resources.Requests))
	}
	out := running.Plus(sidecars).Max(starting)
	if p.Spec.Resources != nil {
		own := p.Spec.Resources.Requests
		if _, ok := own[corev1.ResourceCPU]; ok {
			out.CPU = milli(own, corev1.ResourceCPU)
		}
		if _, ok := own[corev1.ResourceMemory]; ok {
			out.Memory = bytes(own, corev1.ResourceMemory)
		}
	}
	return out.Plus(folded(p.Spec.Overhead))
}

// folded are CPU and memory of a list with its batch and mid amounts: whole milli-cores and bytes.
func folded(l corev1.ResourceList) capacity.Amounts {
	out := amountsOf(l)
	for _, name := range []corev1.ResourceName{protocol.ResourceBatchCPU, protocol.ResourceMidCPU} {
		out = out.Plus(capacity.Amounts{CPU: unit.MilliCPU(bytes(l, name))})
	}
	for _, name := range []corev1.ResourceName{protocol.ResourceBatchMemory, protocol.ResourceMidMemory} {
		out = out.Plus(capacity.Amounts{Memory: bytes(l, name)})
	}
	return out
}
