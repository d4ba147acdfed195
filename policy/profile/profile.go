// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package profile decides at admission what becomes of a pod: which ClusterColocationProfiles change it and how, its requests
// as batch-* and mid-* resources, its device requests, the scheduler it needs, and why it is refused.
//
//	select     both selectors match; in order of names; a probability of p % takes exactly p of 100 draws
//	apply      labels, annotations, mapped labels, mapped annotations, suffixes, scheduler, QoS class, priority class,
//	           sub-priority; the strategic merge patch comes last and is its caller's: it needs the schema of a pod
//	translate  class batch or mid: cpu 1.5 becomes kubernetes.io/batch-cpu 1500 (milli-cores), memory 4Gi becomes
//	           kubernetes.io/batch-memory 4Gi, of containers and init containers; a limit alone is a request too
//	devices    koordinator.sh/gpu 200 becomes gpu-core 200, gpu-memory-ratio 200, gpu.shared 2
//	scheduler  who carries Koordinator's labels or classes, asks for a device, has a reservation or a quota needs ours
//	check      BE is batch, mid or free; LSR is prod; LSE and LSR ask for whole CPUs; batch-* is BE; what may not change does not
//	quota      no pod of a parent, none that alone asks for more than its quota may ever have; the nodes of a quota's tree
//	trust      the scheduler's annotations are the scheduler's; those that move a node's knobs obey the namespace's limits
//
// Inputs are values made from API objects, outputs are changed values, and problems for people. What cannot be done leaves the
// pod as it was and is told: admission must not stop a cluster. It imports api/protocol, api/strategy, model/unit and the standard
// library only; never Kubernetes' types, os, net, log, fmt, time or anything random.
package profile

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// Pod is what admission reads and changes of a pod. Ephemeral containers are not here: they cannot ask for resources.
type Pod struct {
	Namespace, Name     string
	Labels, Annotations map[string]string
	// Controller owns the pod, nil for a pod of its own.
	Controller *Controller

	SchedulerName     string
	PriorityClassName string
	Priority          *int32
	// PreemptionPolicy is "" where the pod says nothing.
	PreemptionPolicy string

	Init, Main []Container
	Overhead   Resources
	// Whole are the pod-level resources.
	Whole Requirements
	// Resources says that resources of containers or of the pod were changed.
	Resources bool
}

// Controller is the owner reference of a pod's controller.
type Controller struct{ APIVersion, Kind, Name, UID string }

// Resources are amounts by resource name, as written.
type Resources map[string]strategy.Quantity

// Requirements are what somebody asks for and may have.
type Requirements struct {
	Requests, Limits Resources
	// Changed says that one of them was written.
	Changed bool
}

// Container is a container or init container.
type Container struct {
	Name string
	// Sidecar is an init container that goes on running.
	Sidecar bool
	Requirements
}

// Problem is something that was not done, or is refused, and why.
type Problem struct {
	// At is the profile, label, annotation or field.
	At string
	// Reason ends with what to do, where there is something to do.
	Reason string
}

// String is "at: reason".
func (p Problem) String() string { return p.At + ": " + p.Reason }

// label sets a label.
func (p *Pod) label(key, value string) {
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[key] = value
}

// Annotate sets an annotation.
func (p *Pod) Annotate(key, value string) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[key] = value
}

// qos is the class of the pod's label; an unknown word is none, as upstream has it.
func (p *Pod) qos() protocol.QoS {
	q, _ := protocol.ParseQoS(p.Labels[protocol.LabelQoSClass])
	return q
}

// class is the pod's priority class by label and priority.
func (p *Pod) class() protocol.PriorityClass { return protocol.PodPriorityClass(p.Labels, p.Priority) }

// set writes one amount.
func (r *Resources) set(name string, amount strategy.Quantity) {
	if *r == nil {
		*r = Resources{}
	}
	(*r)[name] = amount
}
