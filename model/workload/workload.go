// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package workload describes pods and containers independently of the runtime that runs them.
//
// adapt/* builds these values, policy/* reads them. Nobody writes to a Pod or Container once it has been handed on.
// It imports model/cgrouppath, model/plan, model/unit, api/protocol and the standard library only.
package workload

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Pod is one pod sandbox.
type Pod struct {
	// ID is the sandbox id, UID the pod's.
	ID, UID, Namespace, Name string
	RuntimeHandler           string
	KubeQoS                  protocol.KubeQoS
	// Cgroup is the pod's directory below the cgroup root with a leading slash, systemd slices already expanded:
	// "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID.slice". QoSCgroup is its parent.
	Cgroup, QoSCgroup string
	// Base is what the kubelet asked for the whole pod, as far as the runtime tells.
	Base Resources
	// BaseUntold: the runtime does not tell it, so that it follows from the containers', see SumBase.
	BaseUntold bool
	// Ask is what labels and annotations request, already parsed.
	Ask protocol.Ask
	// Problems are the labels and annotations that could not be read.
	Problems []protocol.Problem
	// PID of the sandbox's process, 0 when there is none.
	PID int
}

// Class is the pod's QoS class: the label's, else the default of its Kubernetes class.
func (p *Pod) Class() protocol.QoS {
	if p.Ask.QoS != protocol.QoSNone {
		return p.Ask.QoS
	}
	return p.KubeQoS.DefaultQoS()
}

// FullName is "namespace/name".
func (p *Pod) FullName() string { return p.Namespace + "/" + p.Name }

// Target is the pod's cgroup as a plan target.
func (p *Pod) Target() plan.Target {
	return plan.Target{Level: plan.LevelPod, Cgroup: p.Cgroup, Pod: p.UID, Name: p.FullName()}
}

// State of a container.
type State uint8

// States in the order of a container's life.
const (
	StateCreating State = iota
	StateCreated
	StateRunning
	StateStopped
)

// Container is one container of a pod.
type Container struct {
	ID, Name string
	State    State
	// Cgroup is the container's directory, as Pod.Cgroup.
	Cgroup string
	// Base is what the kubelet (or an earlier plugin) asked, before us.
	Base Resources
	// EnvNames are the names of its variables; values are never kept.
	EnvNames []string
	// CDIDevices that somebody else has already requested.
	CDIDevices []string
	// Applied is our own mark from an earlier life of the plugin, nil when there is none.
	Applied *protocol.Applied
	// Foreign is what external hook servers want of the container; the targets in it say nothing.
	Foreign plan.Plan
	// PID of the init process, 0 before it exists.
	PID int
}

// Target is the container's cgroup as a plan target.
func (c *Container) Target(p *Pod) plan.Target {
	return plan.Target{Level: plan.LevelContainer, Cgroup: c.Cgroup, Pod: p.UID, Container: c.ID, Name: p.Namespace + "/" + p.Name + "/" + c.Name}
}

// Resources are the fields of an OCI/CRI resource block that policies read. Absent means that nobody asked.
type Resources struct {
	Shares      unit.Opt // cpu.shares
	Quota       unit.Opt // µs, -1 unlimited
	Period      unit.Opt // µs
	CPUs, Mems  string
	MemoryLimit unit.Opt // bytes, -1 unlimited
	OOMScoreAdj unit.Opt
	// Unified are the cgroup v2 keys already asked for (kubelet's MemoryQoS shows here).
	Unified map[string]string
	RDT     string
}

// CPULimit is the CPU limit in milli-CPUs, 0 when unlimited.
func (r *Resources) CPULimit() unit.MilliCPU {
	return unit.MilliFromQuota(unit.Micros(r.Quota.Or(0)), unit.Micros(r.Period.Or(int64(unit.CFSPeriod))))
}

// MemLimit is the memory limit in bytes, 0 when unlimited.
func (r *Resources) MemLimit() unit.Bytes {
	return unit.Bytes(max(r.MemoryLimit.Or(0), 0))
}
