// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"cmp"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
)

// Phase of a pod.
type Phase uint8

// The phases of Kubernetes.
const (
	PhaseUnknown Phase = iota
	PhasePending
	PhaseRunning
	PhaseSucceeded
	PhaseFailed
)

var phases = [...]string{"Unknown", "Pending", "Running", "Succeeded", "Failed"}

// String is Kubernetes' spelling.
func (p Phase) String() string { return phases[min(int(p), len(phases)-1)] }

// phaseOf reads Kubernetes' spelling.
func phaseOf(s string) Phase {
	for p, name := range phases {
		if name == s {
			return Phase(p)
		}
	}
	return PhaseUnknown
}

// Pod is what is kept of one pod. It never changes; a pod that changed is another value.
type Pod struct {
	// UID is the one that cgroups and the runtime know. For a static pod that is the hash of its manifest
	// (kubernetes.io/config.hash), not the UID of its mirror at the API server.
	UID string
	// APIUID is the API server's UID; empty for a static pod that only the kubelet has told us of.
	APIUID          string
	Namespace, Name string
	// Static pods come from a file or URL of the node: evicting one has no effect.
	Static bool
	// DaemonSet pods would be made again on this node at once.
	DaemonSet bool
	// Labels and Annotations hold the keys of Koordinator's domains and of our own, as given; nil without any.
	Labels, Annotations map[string]string
	// QoS is the label's class, QoSNone without a valid one; Kube is Kubernetes' own.
	QoS  protocol.QoS
	Kube protocol.KubeQoS
	// Priority is spec.priority, 0 when not given.
	Priority int32
	// PriorityClass is the label's band, else the band that Priority lies in.
	PriorityClass protocol.PriorityClass
	// SubPriority orders pods of one priority (label koordinator.sh/priority).
	SubPriority int32
	// EvictionPriority is the annotation koordinator.sh/eviction-priority: the lowest goes first.
	EvictionPriority int32
	HostNetwork      bool
	// IPs are its addresses in their shortest form, the main one first; those of a pod with HostNetwork are the node's.
	IPs []string

	Phase Phase
	// Started is when the kubelet has taken it in; zero before.
	Started time.Time
	// Deleted is when its grace period ends or has ended; zero for a pod that nobody deletes.
	Deleted time.Time
	// Grace is spec.terminationGracePeriodSeconds.
	Grace time.Duration

	// Own are the pod-level resources (KEP-2837), nil when not given. Overhead is what its runtime class adds.
	Own      *Resources
	Overhead amount.Amounts
	// Containers in the order init, regular, ephemeral, as they stand in the object.
	Containers []Container
}

// Resources are requests and limits; a limit of 0 is none.
type Resources struct {
	Requests, Limits amount.Amounts
}

// Kind of a container.
type Kind uint8

// The kinds.
const (
	// Regular containers run as long as the pod.
	Regular Kind = iota
	// Init containers run one after another before the regular ones.
	Init
	// Sidecar is an init container with restartPolicy Always: it starts in its turn and stays.
	Sidecar
	// Ephemeral containers are for debugging and have no resources.
	Ephemeral
)

// String is a lower-case word.
func (k Kind) String() string {
	return [...]string{"regular", "init", "sidecar", "ephemeral"}[min(int(k), 3)]
}

// Container is what is kept of one container.
type Container struct {
	Name string
	// ID without the runtime's scheme; empty before the container was made.
	ID   string
	Kind Kind
	// Running says that its process runs.
	Running bool
	Resources
}

// Class is the pod's QoS class: the label's, else the default of its Kubernetes class.
func (p *Pod) Class() protocol.QoS {
	if p.QoS != protocol.QoSNone {
		return p.QoS
	}
	return p.Kube.DefaultQoS()
}

// Band is the priority band with its default: that of the QoS class when neither label nor priority tells. BE is batch,
// all others are prod.
func (p *Pod) Band() protocol.PriorityClass {
	return cmp.Or(p.PriorityClass, p.Class().DefaultPriorityClass(), protocol.PriorityProd)
}

// Finished reports that no process of the pod will run any more.
func (p *Pod) Finished() bool { return p.Phase == PhaseSucceeded || p.Phase == PhaseFailed }

// Deleting reports that somebody has deleted the pod.
func (p *Pod) Deleting() bool { return !p.Deleted.IsZero() }

// FullName is "namespace/name".
func (p *Pod) FullName() string { return p.Namespace + "/" + p.Name }

// Container finds one by name.
func (p *Pod) Container(name string) (*Container, bool) {
	for i := range p.Containers {
		if p.Containers[i].Name == name {
			return &p.Containers[i], true
		}
	}
	return nil, false
}
