// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kept

import (
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// Pod is a pod in place of a *corev1.Pod: of that, empty, the struct alone is more than a kilobyte, and each list of resources 0.7.
type Pod struct {
	// ObjectMeta has namespace, name and version; for the recommender the UID too.
	metav1.ObjectMeta
	// Value is what formulas take it for.
	Value capacity.Pod
	// Node is where it runs, Finished that it no longer does.
	Node     string
	Finished bool

	owner      unique.Handle[Owner]
	containers string
}

// Owner is the controller of a pod. Pods of a workload share one.
type Owner struct{ APIVersion, Kind, Name, UID string }

// PodOf keeps of a pod what the controllers of the role slo read, and, if owned, what the recommender reads: UID, owner, names of
// containers.
func PodOf(p *corev1.Pod, owned bool) *Pod {
	qos := qosOf(p)
	name := p.Namespace + "/" + p.Name // one text for all three
	out := &Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: name[:len(p.Namespace)], Name: name[len(p.Namespace)+1:], ResourceVersion: p.ResourceVersion},
		Value: capacity.Pod{
			Name: name, Class: classOf(p, qos), QoS: qos, Request: requestOf(p),
			Zones: memoryNodesOf(p.Annotations[protocol.AnnotationResourceStatus]),
		},
		Node: Shared(p.Spec.NodeName), Finished: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	if !owned {
		return out
	}
	out.UID = p.UID
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
		out.owner = unique.Make(Owner{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID)})
	}
	out.containers = Shared(strings.Join(lasting(p), separator))
	return out
}

// Owner is the controller of the pod, false for a pod without.
func (p *Pod) Owner() (Owner, bool) {
	if p.owner == (unique.Handle[Owner]{}) {
		return Owner{}, false
	}
	return p.owner.Value(), true
}

// separator cannot be in the name of a container, which is a DNS label.
const separator = "/"

// Containers are the names of containers and sidecars: who runs as long as the pod does.
func (p *Pod) Containers() []string {
	if p.containers == "" {
		return nil
	}
	return strings.Split(p.containers, separator)
}

func lasting(p *corev1.Pod) []string {
	var out []string
	for i := range p.Spec.Containers {
		out = append(out, p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out = append(out, c.Name)
		}
	}
	return out
}

// Shared is one copy of a text that many objects have.
func Shared(text string) string { return unique.Make(text).Value() }

// GetObjectKind is that of an object which does not tell its kind, as typed objects of a cache do.
func (p *Pod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject makes it a runtime.Object.
func (p *Pod) DeepCopyObject() runtime.Object {
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Value.Zones = slices.Clone(p.Value.Zones)
	return &out
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
			out.CPU = Milli(own, corev1.ResourceCPU)
		}
		if _, ok := own[corev1.ResourceMemory]; ok {
			out.Memory = Bytes(own, corev1.ResourceMemory)
		}
	}
	return out.Plus(folded(p.Spec.Overhead))
}

// folded are CPU and memory of a list with its batch and mid amounts: whole milli-cores and bytes.
func folded(l corev1.ResourceList) capacity.Amounts {
	out := Amounts(l)
	for _, name := range []corev1.ResourceName{protocol.ResourceBatchCPU, protocol.ResourceMidCPU} {
		out = out.Plus(capacity.Amounts{CPU: unit.MilliCPU(Bytes(l, name))})
	}
	for _, name := range []corev1.ResourceName{protocol.ResourceBatchMemory, protocol.ResourceMidMemory} {
		out = out.Plus(capacity.Amounts{Memory: Bytes(l, name)})
	}
	return out
}
