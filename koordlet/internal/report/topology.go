// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/kubeletopt"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Machine is what does not change while the machine runs.
type Machine struct {
	Topology *topo.Topology
	// Memory is MemTotal of each memory node.
	Memory map[int]unit.Bytes
	// Model and Vendor of the processors; HyperThreads and Turbo say what is on; L3Mask is the cache's full bit mask, 0 where
	// it cannot be divided.
	Model, Vendor       string
	HyperThreads, Turbo bool
	L3Mask              uint64
}

// TopologyInput is what a NodeResourceTopology is made from.
type TopologyInput struct {
	Machine *Machine
	// Kubelet is the checkpoint of its CPU manager; the zero value is none.
	Kubelet Checkpoint
	// Options are what the kubelet was told; nil while that is not known.
	Options *kubeletopt.Options
	// Reserved are CPUs that no pod gets.
	Reserved topo.CPUSet
	Pods     *pods.Snapshot
	// SharePools and BESharePools are those that were published last.
	SharePools, BESharePools []node.Pool
	// Node are the Node object's annotations, Labels its labels: some of them are told here too, for the scheduler.
	Node, Labels map[string]string
	// Kept is what the kubelet keeps from pods: the node's capacity − allocatable, not amplified.
	Kept Figures
	// HugePages are those that each memory node has set apart, in order of size.
	HugePages map[int][]HugePages
}

// HugePages are the pages of one size.
type HugePages struct{ Size, Total unit.Bytes }

// Topology is the part of a NodeResourceTopology that is ours: annotations and labels by key, a removed one empty, and zones by
// name.
type Topology struct {
	Annotations, Labels map[string]string
	Zones               []Zone
	// Policy is the word for the kubelet's topology manager, empty while that is not known: then the object's stays.
	Policy string
}

// Zone is one memory node as the object has it. What we do not read stays as it is.
type Zone struct {
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Parent     string          `json:"parent,omitempty"`
	Costs      json.RawMessage `json:"costs,omitempty"`
	Attributes json.RawMessage `json:"attributes,omitempty"`
	Resources  []ZoneResource  `json:"resources,omitempty"`
}

// ZoneResource is one resource of a zone; quantities as they stand.
type ZoneResource struct {
	Name        string          `json:"name"`
	Capacity    amount.Quantity `json:"capacity"`
	Allocatable amount.Quantity `json:"allocatable"`
	Available   amount.Quantity `json:"available"`
}

// The object's fixed words (koordinator-node.md §8).
const (
	zoneType     = "Node"
	labelManaged = "app.kubernetes.io/managed-by"
	managedBy    = "Koordinator"
	// noPolicy is what the kubelet's topology manager does by default.
	noPolicy = "None"
)

// topologyPolicy is the object's word for the kubelet's topology manager, by policy and scope
// (k8stopologyawareschedwg/noderesourcetopology-api v1alpha1, TopologyManagerPolicy): single-numa-node of a pod is
// SingleNUMANodePodLevel.
func topologyPolicy(o *kubeletopt.Options) string {
	stem := map[string]string{
		kubeletopt.TopologyBestEffort: "BestEffort", kubeletopt.TopologyRestricted: "Restricted", kubeletopt.TopologySingleNUMA: "SingleNUMANode",
	}[o.TopologyPolicy]
	level := map[string]string{kubeletopt.ScopeContainer: "ContainerLevel", kubeletopt.ScopePod: "PodLevel"}[o.TopologyScope]
	if stem == "" || level == "" {
		return noPolicy
	}
	return stem + level
}

// BuildTopology makes annotations and zones (koordinator-node.md §1.7):
//
//	cpu-topology          every CPU with core, socket and memory node
//	cpu-basic-info        model, vendor, hyper-threads, turbo, cache mask
//	cpu-manager-policy    the kubelet's policy and its options; reserved are our CPUs, and those that its static policy keeps
//	pod-cpu-allocs        who has CPUs from the kubelet's static policy
//	cpu-shared-pools      what LS pods share; be-cpu-shared-pools what BE pods may use
//	reservation, system-qos-resource   as the Node object says
//
// A zone offers the CPUs of its node, its huge pages by size, and the memory without them, not amplified; what pods use of it is for the
// scheduler to subtract. On a node with the label enable-numa-reservation each of n zones keeps ⌈Kept / n⌉ of CPUs and memory.
//
// Example: 2 zones of 32 CPUs, capacity 64, allocatable 61: 30500m of each can be allocated.
func BuildTopology(in *TopologyInput) (Topology, error) {
	m := in.Machine
	out := Topology{Annotations: map[string]string{
		protocol.AnnotationNodeReservation:   in.Node[protocol.AnnotationNodeReservation],
		protocol.AnnotationSystemQoSResource: in.Node[protocol.AnnotationSystemQoSResource],
	}, Labels: map[string]string{
		labelManaged: managedBy, protocol.LabelNUMAReservation: in.Labels[protocol.LabelNUMAReservation],
	}}
	if in.Options != nil {
		out.Policy = topologyPolicy(in.Options)
	}
	for key, value := range map[string]any{ // the order changes nothing
		protocol.AnnotationCPUTopology: struct {
			Detail []cpuDetail `json:"detail"`
		}{details(m.Topology)},
		protocol.AnnotationCPUBasicInfo: basicInfo{
			Model: m.Model, HyperThreads: m.HyperThreads, Turbo: m.Turbo, L3Mask: hex(m.L3Mask), Vendor: m.Vendor,
		},
		protocol.AnnotationCPUManagerPolicy: manager(in),
		protocol.AnnotationPodCPUAllocs:     allocations(in),
		protocol.AnnotationCPUSharedPools:   none(in.SharePools),
		protocol.AnnotationBECPUSharedPools: none(in.BESharePools),
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return Topology{}, fmt.Errorf("encode %s: %w", key, err)
		}
		out.Annotations[key] = string(text)
	}
	kept := in.kept()
	for _, id := range m.Topology.Nodes.List() {
		huge, apart := in.hugePages(id)
		all := Figures{unit.MilliCPU(m.Topology.NodeCPUs(id).Len() * 1000), max(m.Memory[id]-apart, 0)}
		free := Figures{max(all.CPU-kept.CPU, 0), max(all.Memory-kept.Memory, 0)}
		cpus, memory := zoneAmounts(all)
		cpusFree, memoryFree := zoneAmounts(free)
		out.Zones = append(out.Zones, Zone{Name: "node-" + strconv.Itoa(id), Type: zoneType, Resources: append([]ZoneResource{
			{"cpu", cpus, cpusFree, cpusFree}, {"memory", memory, memoryFree, memoryFree},
		}, huge...)})
	}
	return out, nil
}

// hugePages are a zone's, as Kubernetes names them ("hugepages-2Mi"), and how much memory they take. A size of which there is none is
// told too: it may have had some before.
func (in *TopologyInput) hugePages(node int) (out []ZoneResource, apart unit.Bytes) {
	for _, h := range in.HugePages[node] {
		total := amount.Quantity(amount.FormatMemory(h.Total))
		out = append(out, ZoneResource{"hugepages-" + amount.FormatMemory(h.Size), total, total, total})
		apart += h.Total
	}
	return out, apart
}

// kept is what each zone keeps from pods.
func (in *TopologyInput) kept() Figures {
	n := in.Machine.Topology.Nodes.Len()
	if in.Labels[protocol.LabelNUMAReservation] != "true" || n == 0 {
		return Figures{}
	}
	return Figures{share(in.Kept.CPU, n), share(in.Kept.Memory, n)}
}

// share is ⌈all / n⌉.
func share[T ~int64](all T, n int) T { return (max(all, 0) + T(n) - 1) / T(n) }

func zoneAmounts(f Figures) (cpus, memory amount.Quantity) {
	return amount.Quantity(amount.FormatCPU(f.CPU)), amount.Quantity(amount.FormatMemory(f.Memory))
}

// none is an empty list rather than null.
func none(p []node.Pool) []node.Pool {
	if p == nil {
		return []node.Pool{}
	}
	return p
}

type cpuDetail struct {
	ID     int `json:"id"`
	Core   int `json:"core"`
	Socket int `json:"socket"`
	Node   int `json:"node"`
}

func details(t *topo.Topology) []cpuDetail {
	out := make([]cpuDetail, 0, len(t.CPUs))
	for _, c := range t.CPUs {
		out = append(out, cpuDetail{c.ID, c.Core, c.Socket, c.Node})
	}
	return out
}

type basicInfo struct {
	Model        string `json:"cpuModel,omitempty"`
	HyperThreads bool   `json:"hyperThreadEnabled,omitempty"`
	Turbo        bool   `json:"turboEnabled,omitempty"`
	L3Mask       string `json:"catL3CbmMask,omitempty"`
	Vendor       string `json:"vendorID,omitempty"`
}

// hex is a mask as resctrl writes it, nothing for none.
func hex(mask uint64) string {
	if mask == 0 {
		return ""
	}
	return strconv.FormatUint(mask, 16)
}

type managerPolicy struct {
	Policy   string            `json:"policy,omitempty"`
	Options  map[string]string `json:"options,omitempty"`
	Reserved string            `json:"reservedCPUs,omitempty"`
}

// manager is the kubelet's CPU manager by its options, by its checkpoint alone while those are not known.
func manager(in *TopologyInput) managerPolicy {
	if in.Options == nil {
		return managerPolicy{Policy: in.Kubelet.Policy, Reserved: in.Reserved.String()}
	}
	return managerPolicy{
		Policy: in.Options.CPUPolicy, Options: in.Options.CPUOptions,
		Reserved: in.Reserved.Union(in.Options.StaticReserved(in.Machine.Topology)).String(),
	}
}

// allocation is one pod with CPUs of the kubelet's static policy.
type allocation struct {
	Namespace string      `json:"namespace,omitempty"`
	Name      string      `json:"name,omitempty"`
	UID       string      `json:"uid,omitempty"`
	CPUs      topo.CPUSet `json:"cpuset"`
	ByKubelet bool        `json:"managedByKubelet,omitempty"`
}

// allocations are ordered by UID. A pod that has gone, whose entry the kubelet has not cleaned up, is left out; a class of
// ours that has CPUs of its own is not the kubelet's.
func allocations(in *TopologyInput) []allocation {
	out := []allocation{}
	for _, uid := range slices.Sorted(maps.Keys(in.Kubelet.Entries)) {
		p, here := in.Pods.Pod(uid)
		if !here || p.Finished() || p.QoS == protocol.QoSLSE || p.QoS == protocol.QoSLSR {
			continue
		}
		out = append(out, allocation{p.Namespace, p.Name, uid, in.Kubelet.Entries[uid], true})
	}
	return out
}

// Checkpoint is the state of the kubelet's CPU manager.
type Checkpoint struct {
	// Policy is none or static, empty while there is no kubelet.
	Policy string
	// Entries are the CPUs of pods by UID, all containers together.
	Entries map[string]topo.CPUSet
}

// maxCheckpoint bounds the file.
const maxCheckpoint = 1 << 20

// ParseCheckpoint reads /var/lib/kubelet/cpu_manager_state (k8s.io/kubernetes pkg/kubelet/cm/cpumanager/state):
//
//	{"policyName":"static","defaultCpuSet":"0-1,4","entries":{"UID":{"app":"2-3"}},"checksum":123}
func ParseCheckpoint(b []byte) (Checkpoint, error) {
	if len(b) > maxCheckpoint {
		return Checkpoint{}, fmt.Errorf("parse CPU manager's state: longer than %d bytes", maxCheckpoint)
	}
	var w struct {
		Policy  string                       `json:"policyName"`
		Entries map[string]map[string]string `json:"entries"`
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return Checkpoint{}, fmt.Errorf("parse CPU manager's state: %w", err)
	}
	if w.Policy == "" {
		return Checkpoint{}, errors.New("parse CPU manager's state: no policyName")
	}
	out := Checkpoint{Policy: w.Policy, Entries: map[string]topo.CPUSet{}}
	for uid, containers := range w.Entries {
		var all topo.CPUSet
		for name, list := range containers {
			set, err := topo.ParseCPUSet(list)
			if err != nil {
				return Checkpoint{}, fmt.Errorf("parse CPU manager's state: container %.64q: %w", name, err)
			}
			all = all.Union(set)
		}
		if !all.Empty() {
			out.Entries[uid] = all
		}
	}
	return out, nil
}

// topologyObject is what is read of an object that is there.
type topologyObject struct {
	Metadata struct {
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Policies []string `json:"topologyPolicies"`
	Zones    []Zone   `json:"zones"`
}

// into joins what is ours with what stands there and says whether anything changes. Zones of other names, resources of
// others (the manager's batch resources), attributes and costs stay; so do the policies while the kubelet's is not known.
func (t *Topology) into(o *topologyObject) (patch map[string]any, changed bool) {
	meta := map[string]any{}
	if d := difference(t.Annotations, o.Metadata.Annotations); len(d) > 0 {
		meta["annotations"] = d
	}
	if d := difference(t.Labels, o.Metadata.Labels); len(d) > 0 {
		meta["labels"] = d
	}
	changed = len(meta) > 0
	patch = map[string]any{"metadata": meta}
	if zones := t.zones(o.Zones); !slices.EqualFunc(zones, o.Zones, sameZone) {
		patch["zones"], changed = zones, true
	}
	switch {
	case t.Policy != "" && !slices.Equal(o.Policies, []string{t.Policy}):
		patch["topologyPolicies"], changed = []string{t.Policy}, true
	case o.Policies == nil:
		patch["topologyPolicies"], changed = []string{noPolicy}, true
	}
	if o.Metadata.ResourceVersion != "" {
		meta["resourceVersion"] = o.Metadata.ResourceVersion
	}
	return patch, changed
}

// difference is the merge patch that brings have to want; a key that is wanted empty is removed.
func difference(want, have map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range want { // the order changes nothing
		old, there := have[key]
		switch {
		case value == "" && there:
			out[key] = nil
		case value != "" && old != value:
			out[key] = value
		}
	}
	return out
}

// zones are the object's with ours in them, in the order in which they stand there.
func (t *Topology) zones(old []Zone) []Zone {
	out := slices.Clone(old)
	for _, z := range t.Zones {
		i := slices.IndexFunc(out, func(o Zone) bool { return o.Name == z.Name })
		if i < 0 {
			out = append(out, z)
			continue
		}
		out[i].Type = z.Type
		out[i].Resources = slices.Clone(out[i].Resources)
		for _, r := range z.Resources {
			if j := slices.IndexFunc(out[i].Resources, func(o ZoneResource) bool { return o.Name == r.Name }); j >= 0 {
				out[i].Resources[j] = r
			} else {
				out[i].Resources = append(out[i].Resources, r)
			}
		}
	}
	return out
}

func sameZone(a, b Zone) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Parent == b.Parent && bytes.Equal(a.Costs, b.Costs) &&
		bytes.Equal(a.Attributes, b.Attributes) && slices.Equal(a.Resources, b.Resources)
}
