// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package policytest builds views, pods and containers for the tests of the policies.
//
// It is imported by tests only.
package policytest

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// GiB is 2^30 bytes.
const GiB = 1 << 30

// vendorKnobs exist on Anolis kernels only.
var vendorKnobs = []plan.Knob{
	plan.CPUBvt, plan.MemoryWmarkRatio, plan.MemoryWmarkScale, plan.MemoryWmarkMinAdj, plan.MemoryPriority,
	plan.MemoryUsePriorityOOM, plan.PageCacheEnable, plan.PageCacheSize, plan.PageCacheSync,
}

// View is a mainline 6.1 node with cgroup v2, 8 CPUs in 2 NUMA nodes, 128 GiB, resctrl with 20 ways, and a strategy that
// enables nothing. Limits are wide.
func View() *node.View {
	v := &node.View{
		Generation: 7, Name: "node-001", Topology: Topology(8, 2), CPUAllocatable: 8000,
		MemAllocatable: 120 * GiB, MemCapacity: 128 * GiB,
		Limits: node.Limits{
			OOMScoreAdjMin: unit.Some(-500), OOMScoreAdjMax: 1000, CPUBurstPercentMax: 10000, MemoryMinPercent: 100,
			MemoryLowPercent: 100, MBAPercentMax: 100, PodResctrl: true, CoreSched: true, Devices: true,
			ExclusivePercent: 80, BlkIO: true,
		},
		Kernel: node.Kernel{
			Release: "6.1.0", Major: 6, Minor: 1, Cgroup: node.CgroupV2, RecursiveProt: true,
			RDT: node.RDT{
				Mounted: true, L3: true, L3CBM: 0xfffff, L3MinBits: 1, L3IDs: []int{0, 1}, Closids: 16, MB: true,
				MBMin: 10, MBGran: 10, MBMax: 100, MBIDs: []int{0, 1}, Mon: true,
			},
			Disks: map[string]string{"sda": "8:0", "/dev/sda": "8:0", "nvme0n1": "259:0"},
		},
		Runtime: node.Runtime{
			Name: "containerd", Version: "2.4.0", NRI: "0.12", Weight: unit.Quadratic,
			Fields: node.Fields{Unified: true, OOMScoreAdj: true, RDTClass: true, CDI: true, Scheduler: true, UpdatePod: true},
		},
	}
	for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
		v.Kernel.Knobs[k].OK = true
	}
	for _, k := range vendorKnobs {
		v.Kernel.Knobs[k] = node.Support{Why: "not a vendor kernel"}
	}
	return Strategy(v, strategy.Spec{})
}

// Vendor gives the view a kernel with bvt, wmark and the like.
func Vendor(v *node.View) *node.View {
	for _, k := range vendorKnobs {
		v.Kernel.Knobs[k] = node.Support{OK: true}
	}
	return v
}

// Strategy puts a strategy, completed, into the view.
func Strategy(v *node.View, s strategy.Spec) *node.View {
	full := strategy.Effective(s)
	v.Strategy = &full
	return v
}

// YAML puts a strategy given as text into the view; an empty text enables nothing.
func YAML(t testing.TB, v *node.View, text string) *node.View {
	t.Helper()
	if text == "" {
		return Strategy(v, strategy.Spec{})
	}
	s, err := strategy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Strategy(v, s)
}

// Everything is a strategy with every class feature enabled.
const Everything = "resourceUsedThresholdWithBE: {enable: true}\n" +
	"cpuBurstStrategy: {policy: auto, cpuBurstPercent: 50}\n" +
	"resourceQOSStrategy:\n" +
	"  lsrClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, minLimitPercent: 50, lowLimitPercent: 60, throttlingPercent: 90}, resctrlQOS: {enable: true}}\n" +
	"  lsClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, minLimitPercent: 20, lowLimitPercent: 30, throttlingPercent: 90, oomKillGroup: 1}, resctrlQOS: {enable: true}}\n" +
	"  beClass: {cpuQOS: {enable: true}, memoryQOS: {enable: true, throttlingPercent: 80}, resctrlQOS: {enable: true}, blkioQOS: {enable: true, blocks: [{name: sda, type: device, ioCfg: {readBPS: 1048576}}]}}\n"

// Topology is n CPUs over the given number of NUMA nodes, two threads a core.
func Topology(n, nodes int) *topo.Topology {
	cpus := make([]topo.CPU, n)
	for i := range cpus {
		cpus[i] = topo.CPU{ID: i, Core: i / 2, Node: i * nodes / n, Socket: i * nodes / n, L3: i * nodes / n}
	}
	return topo.New(cpus, topo.Range(0, nodes-1))
}

// Pod is a pod of a class; its Kubernetes class follows from it.
func Pod(class protocol.QoS) *workload.Pod {
	p := &workload.Pod{
		ID: "sandbox", UID: "uid-1", Namespace: "default", Name: "web", KubeQoS: protocol.KubeBurstable,
		Cgroup: "/kubepods/burstable/poduid-1", QoSCgroup: "/kubepods/burstable",
		Ask: protocol.Ask{QoS: class},
	}
	switch class {
	case protocol.QoSBE:
		p.KubeQoS, p.Cgroup, p.QoSCgroup = protocol.KubeBestEffort, "/kubepods/besteffort/poduid-1", "/kubepods/besteffort"
		p.Base = workload.Resources{Shares: unit.Some(2)}
	case protocol.QoSLSE, protocol.QoSLSR:
		p.KubeQoS, p.Cgroup, p.QoSCgroup = protocol.KubeGuaranteed, "/kubepods/poduid-1", "/kubepods"
		p.Base = Limits(2000, 8*GiB)
	default:
		p.Base = Limits(2000, 4*GiB)
	}
	return p
}

// Container is the pod's container "app", as the kubelet asks for it.
func Container(p *workload.Pod) *workload.Container {
	c := &workload.Container{ID: "c1", Name: "app", Cgroup: p.Cgroup + "/c1", Base: p.Base}
	switch p.KubeQoS {
	case protocol.KubeGuaranteed:
		c.Base.OOMScoreAdj = unit.Some(-997)
	case protocol.KubeBestEffort:
		c.Base.OOMScoreAdj = unit.Some(1000)
	default:
		c.Base.OOMScoreAdj = unit.Some(985)
	}
	return c
}

// Limits are the kubelet's values for CPU and memory limits.
func Limits(milli unit.MilliCPU, memory unit.Bytes) workload.Resources {
	return workload.Resources{
		Shares: unit.Some(int64(unit.SharesFromMilli(milli))), Quota: unit.Some(int64(unit.QuotaFromMilli(milli))),
		Period: unit.Some(100000), MemoryLimit: unit.Some(int64(memory)),
	}
}

// Cache puts the only container's spec into the view's pod cache.
func Cache(v *node.View, p *workload.Pod, containers map[string]node.ContainerSpec) *node.View {
	v.Pods = map[string]node.PodSpec{p.UID: {Containers: containers}}
	return v
}

// Batch is an extended spec entry with equal batch requests and limits; 0 is absent.
func Batch(milli, memory int64) protocol.ExtendedContainer {
	var r protocol.ExtendedResources
	if milli != 0 {
		r.BatchCPU = &milli
	}
	if memory != 0 {
		r.BatchMemory = &memory
	}
	return protocol.ExtendedContainer{Requests: r, Limits: r}
}

// Set renders a plan as "knob[key]" to value.
func Set(pl plan.Plan) map[string]string {
	out := map[string]string{}
	for i := range pl {
		name := pl[i].Knob.String()
		if pl[i].Key != "" {
			name += "[" + pl[i].Key + "]"
		}
		out[name] = pl[i].Value.String()
	}
	return out
}

// Want compares a plan with "knob[key]" to value; "-" means not planned. With exact no other setting may be there.
func Want(t *testing.T, pl plan.Plan, want map[string]string, exact bool) {
	t.Helper()
	got := Set(pl)
	for k, w := range want {
		if g, ok := got[k]; ok != (w != "-") || ok && g != w {
			t.Errorf("%s = %q (planned %v), want %q\nplan:\n%s", k, g, ok, w, pl)
		}
	}
	if exact && len(got) != len(want) {
		t.Errorf("plan has %d settings, want %d:\n%s", len(got), len(want), pl)
	}
}
