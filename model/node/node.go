// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package node holds the View: all that a decision about this node may depend on, as one immutable value.
//
// The edges build a new View for every change and swap it in atomically; policies only read it. It imports the other
// model packages, api/protocol, api/strategy and the standard library.
package node

import (
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Mode of a feature on this node.
type Mode uint8

// Modes. The zero value is Active.
const (
	Active Mode = iota
	// Observe plans, records and counts, but writes nothing.
	Observe
	// Off does not even plan.
	Off
)

// String names the mode.
func (m Mode) String() string { return [...]string{"active", "observe", "off"}[min(int(m), 2)] }

// View is the state of the node at one generation.
type View struct {
	// Generation grows with every View of a process; it stands in every annotation and ledger record.
	Generation uint64
	Name       string

	Topology       *topo.Topology
	CPUAllocatable unit.MilliCPU
	MemAllocatable unit.Bytes
	MemCapacity    unit.Bytes

	// Strategy is complete (strategy.Effective): no leaf that a policy reads is nil.
	Strategy *strategy.Spec

	Modes      [protocol.NumFeatures]Mode
	FailClosed protocol.FeatureSet
	// OptOutNamespaces are patterns (path.Match) of namespaces that are left alone completely.
	OptOutNamespaces []string
	// ForeignHandlers are patterns (path.Match) of runtime handlers whose cgroups we must not touch.
	ForeignHandlers []string
	// Ceded knobs belong to another plugin on this node.
	Ceded  plan.Knobs
	Limits Limits

	Kernel  Kernel
	Runtime Runtime
	Claims  Claims
	Dynamic Dynamic
	// Pods is the node agent's pod cache by UID: what neither NRI nor CRI tells. Nil without the agent.
	Pods map[string]PodSpec
}

// Limits cap what a pod's annotations may ask for (D13). Zero values are not "none": the edges fill them from
// configuration, whose defaults are documented there.
type Limits struct {
	// OOMScoreAdjMin is not set for the default: 0, or what the kubelet gave the container where that is less.
	OOMScoreAdjMin                 unit.Opt
	OOMScoreAdjMax                 int
	CPUBurstPercentMax             unit.Percent
	MemoryMinPercent               unit.Percent
	MemoryLowPercent               unit.Percent
	MemoryNodePercent              unit.Percent // share of the node's allocatable memory that pods may protect, one or all together; 0: any
	MBAPercentMax                  unit.Percent
	PodResctrl, CoreSched, Devices bool
	BeyondClass                    bool         // a BE pod may ask for more cache, bandwidth and block IO than its class has
	BlkIO                          bool         // block IO limits by annotation
	IOLatencyMin                   int64        // smallest latency target by annotation, in µs
	ExclusivePercent               unit.Percent // share of the node's CPUs that LSE/LSR pods may claim
}

// Claims are the CPUs that running LSE and LSR containers hold, and those the node keeps for itself.
type Claims struct {
	// LSE CPUs are shared with nobody; LSR CPUs with BE only when Dynamic says so.
	LSE, LSR topo.CPUSet
	// Reserved for the system by configuration or the node's reservation annotation.
	Reserved topo.CPUSet
	// ByPod holds what each pod (by UID) claims. LSE and LSR are its unions; it tells a pod's own CPUs from those of others.
	ByPod map[string]PodClaim
}

// PodClaim is the part of the claims that one pod's containers hold.
type PodClaim struct{ LSE, LSR topo.CPUSet }

// Pool is a set of CPUs of one NUMA node that LS (or BE) pods share.
type Pool struct {
	Socket int         `json:"socket"`
	Node   int         `json:"node"`
	CPUs   topo.CPUSet `json:"cpuset"`
}

// Dynamic is what the node agent decides every tick. Past Expires it no longer holds and the static defaults apply;
// the edge that builds the View clears it then.
type Dynamic struct {
	// Known is false without an agent or past Expires.
	Known   bool
	Expires time.Time
	// BECPUs is the current suppression set; empty means that suppression is off.
	BECPUs topo.CPUSet
	// BESharesLSR says that the agent knowingly lets BE run on LSR CPUs.
	BESharesLSR bool
	// BEQuota says that the agent holds the directory of Kubernetes' BestEffort class to a quota, so that the BE pods below it need none of
	// their own.
	BEQuota bool
	// SharePools and BESharePools are per NUMA node.
	SharePools, BESharePools []Pool
	// SystemQoS is the set of SYSTEM pods; when Exclusive, nobody else may use it.
	SystemQoS          topo.CPUSet
	SystemQoSExclusive bool
	// Normalization is the node's CPU normalisation ratio in hundredths; ≤ 100 is off.
	Normalization unit.Ratio
	// Quotas are what the loops make of CPU quotas, by the pod's UID; who is not named stands at its own.
	Quotas map[string]QuotaLoop
	// MemoryHigh is what the memory loop makes of memory.high, by container id; who is not named has its own.
	MemoryHigh map[string]MemoryHigh
	// OOMScores is what tuning makes of oom_score_adj, by container id; who is not named has its own.
	OOMScores map[string]OOMScore
	// DiskLimits are BE pods, by UID, that are held for disturbing others at the disks.
	DiskLimits map[string]DiskLimit
	// Network is how the uplink's bandwidth is divided.
	Network Network
}

// Network is what has become of network QoS (policy/netqos); the zero value where nobody asks for it.
type Network struct {
	// Missing says why there is none, Limited what of it there is not.
	Missing string `json:"missing,omitempty"`
	Limited string `json:"limited,omitempty"`
}

// MemoryHigh is one container's for the time being (policy/memqos).
type MemoryHigh struct {
	Bytes  unit.Bytes
	Reason string
}

// OOMScore is one container's oom_score_adj for the time being (policy/oomscore).
type OOMScore struct {
	Score  int64
	Reason string
}

// DiskLimit is what one pod may read and write of each disk for the time being, in bytes per second (policy/interference).
type DiskLimit struct {
	Read, Write unit.Bytes
	Reason      string
}

// QuotaLoop is what the loops make of the quotas of one pod.
type QuotaLoop struct {
	// Factors raise its containers' quotas, by the container's id; Plus is what the pod's own gets (policy/burst).
	Factors map[string]unit.Fraction
	Plus    unit.Micros
	// Cap is what the pod and each of its containers are held to, 0 for nothing (policy/suppress).
	Cap unit.MilliCPU
}

// PodSpec is one entry of the pod cache.
type PodSpec struct {
	Extended   map[string]protocol.ExtendedContainer
	Containers map[string]ContainerSpec
}

// ContainerSpec are the Kubernetes requests and limits of one container; 0 is none.
type ContainerSpec struct {
	CPURequest, CPULimit       unit.MilliCPU
	MemoryRequest, MemoryLimit unit.Bytes
	// Devices are the requested amounts of device resources (koordinator.sh/gpu-core, nvidia.com/gpu …) by name.
	Devices map[string]int64
	// Init is set for one that has ended before the pod's other containers begin; a sidecar has not.
	Init bool
}

// Mode of a feature.
func (v *View) Mode(f protocol.Feature) Mode { return v.Modes[f] }
