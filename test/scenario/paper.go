// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package scenario

import (
	"fmt"
	"maps"
	"strings"

	nriapi "github.com/containerd/nri/pkg/api"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	containerpolicy "github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/llc"
	podpolicy "github.com/koord-rt/koord-rt/policy/pod"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// Paper is a scenario on a node that exists only on paper: what the plugin's handlers would be told and decide.
type Paper struct {
	View *node.View
	Pods []PaperPod
	// Problems are lines "pod key: reason".
	Problems []string

	scenario *Scenario
}

// PaperPod is one pod of a Paper.
type PaperPod struct {
	Desc       kubelet.Description
	Pod        *workload.Pod
	Containers []*workload.Container
	// Plan is the pod level's, Plans the containers'.
	Plan  plan.Plan
	Plans []plan.Plan
}

// Kernel describes the fake machine; every knob is taken from has.
func Kernel(version string, has func(plan.Knob) bool) node.Kernel {
	k := node.Kernel{Release: "6.12.48-cloud-amd64", Major: 6, Minor: 12, Cgroup: node.CgroupV2, RecursiveProt: true}
	if version == "v1" {
		k.Release, k.Minor, k.Cgroup, k.RecursiveProt = "6.1.0-40-amd64", 1, node.CgroupV1, false
	}
	if has(plan.RDTClass) {
		k.RDT = node.RDT{Mounted: true, L3: true, L3CBM: 0xfffff, L3MinBits: 1, L3IDs: []int{0, 1}, Closids: 4}
	}
	for kn := plan.KnobNone + 1; kn < plan.NumKnobs; kn++ {
		k.Knobs[kn] = node.Support{OK: has(kn), Why: "not on this paper kernel"}
	}
	disk := paperDisk()
	k.Disks = map[string]string{disk.Name: disk.Number, "/dev/" + disk.Name: disk.Number}
	return k
}

// Topology builds "host2" or "vm8" ("any" is vm8).
func Topology(name string) *topo.Topology {
	n, perNode := 8, 4
	if name == "host2" {
		n, perNode = 2, 2
	}
	cpus := make([]topo.CPU, n)
	for i := range cpus {
		cpus[i] = topo.CPU{ID: i, Core: i % perNode / 2, Socket: i / perNode, Node: i / perNode, L3: i / perNode}
	}
	return topo.New(cpus, topo.Range(0, n/perNode-1))
}

// NewPaper lets the policies decide the whole scenario, pods in order, with the claims of all of them in force: the
// state in which the node settles.
func NewPaper(s *Scenario, kernel node.Kernel) (*Paper, error) {
	v, err := s.view(kernel)
	if err != nil {
		return nil, err
	}
	p := &Paper{View: v, scenario: s}
	for _, spec := range s.Pods {
		if err := p.add(s, spec); err != nil {
			return nil, fmt.Errorf("pod %s: %w", spec.Name, err)
		}
	}
	return p, p.decide()
}

func (s *Scenario) view(kernel node.Kernel) (*node.View, error) {
	memory, err := s.Memory.Value()
	if err != nil {
		return nil, err
	}
	text, err := s.NRIConfig(nil)
	if err != nil {
		return nil, err
	}
	cfg, spec, err := config.LoadNRI(text)
	if err != nil {
		return nil, err
	}
	if spec == nil {
		spec = &strategy.Spec{}
	}
	effective := strategy.Effective(*spec)
	v := &node.View{
		Generation: 1, Name: "paper", Topology: Topology(s.Topology), Strategy: &effective,
		MemCapacity: unit.Bytes(memory), MemAllocatable: unit.Bytes(memory),
		OptOutNamespaces: cfg.OptOut.Namespaces, ForeignHandlers: cfg.OptOut.RuntimeHandlers,
		Kernel: kernel, Runtime: nri.Runtime("containerd", "v2.4.2", "0.12.3"), Dynamic: s.Dynamic,
		Limits: node.Limits{
			OOMScoreAdjMax: cfg.Limits.OOMScoreAdjMax, MemoryNodePercent: unit.Percent(cfg.Limits.MemoryNodePercentMax),
			BeyondClass: cfg.Limits.BeyondClass, IOLatencyMin: cfg.Limits.IOLatencyMin,
			CPUBurstPercentMax: unit.Percent(cfg.Limits.CPUBurstPercentMax), MemoryMinPercent: unit.Percent(cfg.Limits.MemoryMinPercentMax),
			MemoryLowPercent: unit.Percent(cfg.Limits.MemoryLowPercentMax), MBAPercentMax: unit.Percent(cfg.Limits.MBAPercentMax),
			PodResctrl: cfg.Limits.ResctrlPodGroups, CoreSched: cfg.Limits.CoreSched, Devices: cfg.Limits.Devices,
			ExclusivePercent: unit.Percent(cfg.Limits.NodeCPUSetMaxPercent), BlkIO: cfg.Limits.BlkIO,
		},
	}
	if least := cfg.Limits.OOMScoreAdjMin; least != nil {
		v.Limits.OOMScoreAdjMin = unit.Some(int64(*least))
	}
	v.CPUAllocatable = unit.MilliCPU(v.Topology.All().Len() * 1000)
	v.Runtime.Weight = unit.Quadratic
	v.Pods = s.Cache
	for _, d := range s.Devices {
		v.Kernel.Devices = append(v.Kernel.Devices, node.DeviceNode{
			Type: d.Type, Minor: d.Index, UUID: d.UUID, BusID: d.BusID, Path: d.Path, Major: int64(d.Major), MinorNumber: int64(d.Minor), Control: d.Control,
		})
	}
	return v, nil
}

func (p *Paper) add(s *Scenario, spec kubelet.Pod) error {
	memory, err := s.Memory.Value()
	if err != nil {
		return err
	}
	d, err := kubelet.Describe(spec, kubelet.DescribeOptions{V2: p.View.Kernel.Cgroup == node.CgroupV2, Driver: kubelet.Cgroupfs, MemoryCapacity: memory})
	if err != nil {
		return err
	}
	sandbox := Sandbox(d.Sandbox)
	sandbox.RuntimeHandler = spec.RuntimeHandler
	pp := PaperPod{Desc: d, Pod: nri.Pod(sandbox)}
	for _, c := range d.Containers {
		pp.Containers = append(pp.Containers, nri.Container(sandbox, Container(sandbox, c)))
	}
	p.Pods = append(p.Pods, pp)
	return nil
}

// decide claims first, then plans everything.
func (p *Paper) decide() error {
	for _, pp := range p.Pods {
		for _, c := range pp.Containers {
			lse, lsr, _ := containerpolicy.Claim(p.View, pp.Pod, c)
			next := *p.View
			next.Claims.LSE, next.Claims.LSR = next.Claims.LSE.Union(lse), next.Claims.LSR.Union(lsr)
			next.Claims.ByPod = maps.Clone(next.Claims.ByPod)
			if next.Claims.ByPod == nil {
				next.Claims.ByPod = map[string]node.PodClaim{}
			}
			if !lse.Empty() || !lsr.Empty() {
				next.Claims.ByPod[pp.Pod.UID] = node.PodClaim{LSE: lse, LSR: lsr}
			}
			p.View = &next
		}
	}
	for i := range p.Pods {
		pp := &p.Pods[i]
		for _, pr := range pp.Pod.Problems {
			p.Problems = append(p.Problems, pp.Pod.Name+" "+pr.Key+": "+pr.Reason)
		}
		var sums podpolicy.Sums
		for _, c := range pp.Containers {
			pl, problems := containerpolicy.Decide(p.View, pp.Pod, c)
			for _, pr := range problems {
				p.Problems = append(p.Problems, pp.Pod.Name+"/"+c.Name+" "+pr.Key+": "+pr.Reason)
			}
			pp.Plans = append(pp.Plans, pl)
			sums.Add(pl, c)
		}
		pp.Plan, _ = podpolicy.Decide(p.View, pp.Pod, sums)
		_, group, _ := llc.PodGroup(p.View, pp.Pod)
		pp.Plan = append(pp.Plan, group...)
	}
	return nil
}

// All is every plan of the scenario, QoS directories and groups included. Container ids are random elsewhere, so the
// paper's stand in the text only by name.
func (p *Paper) All() (plan.Plan, error) {
	all := []plan.Plan{llc.Groups(p.View), podpolicy.Ancestors(p.View, p.protections())}
	for _, pp := range p.Pods {
		all = append(all, pp.Plan)
		all = append(all, pp.Plans...)
	}
	return plan.Merge(all...)
}

func (p *Paper) protections() []podpolicy.Protection {
	var out []podpolicy.Protection
	for _, pp := range p.Pods {
		prot := podpolicy.Protection{QoSCgroup: pp.Pod.QoSCgroup, KubepodsCgroup: "/kubepods"}
		if s := pp.Plan.Get(plan.MemoryMin); s != nil {
			prot.Min = unit.Bytes(s.Value.Int())
		}
		if s := pp.Plan.Get(plan.MemoryLow); s != nil {
			prot.Low = unit.Bytes(s.Value.Int())
		}
		if prot.Min > 0 || prot.Low > 0 {
			out = append(out, prot)
		}
	}
	return out
}

// Sandbox is the NRI message that containerd makes of a sandbox configuration.
func Sandbox(c *runtimeapi.PodSandboxConfig) *nriapi.PodSandbox {
	return &nriapi.PodSandbox{
		Id: "sandbox-" + c.GetMetadata().GetUid(), Uid: c.GetMetadata().GetUid(), Name: c.GetMetadata().GetName(),
		Namespace: c.GetMetadata().GetNamespace(), Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
		Linux: &nriapi.LinuxPodSandbox{
			CgroupParent: c.GetLinux().GetCgroupParent(), PodResources: resources(c.GetLinux().GetResources()),
			PodOverhead: resources(c.GetLinux().GetOverhead()),
		},
	}
}

// Container is the NRI message that containerd makes of a container configuration.
func Container(sb *nriapi.PodSandbox, c *runtimeapi.ContainerConfig) *nriapi.Container {
	id := strings.ToLower(sb.GetUid() + "-" + c.GetMetadata().GetName())
	out := &nriapi.Container{
		Id: id, Name: c.GetMetadata().GetName(), PodSandboxId: sb.GetId(), Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
		State: nriapi.ContainerState_CONTAINER_CREATED,
		Linux: &nriapi.LinuxContainer{
			Resources: resources(c.GetLinux().GetResources()), CgroupsPath: sb.GetLinux().GetCgroupParent() + "/" + id,
			OomScoreAdj: nriapi.Int(int(c.GetLinux().GetResources().GetOomScoreAdj())),
		},
	}
	for _, e := range c.GetEnvs() {
		out.Env = append(out.Env, e.GetKey()+"="+string(e.GetValue()))
	}
	return out
}

func resources(r *runtimeapi.LinuxContainerResources) *nriapi.LinuxResources {
	if r == nil {
		return nil
	}
	out := &nriapi.LinuxResources{Cpu: &nriapi.LinuxCPU{Cpus: r.CpusetCpus, Mems: r.CpusetMems}, Memory: &nriapi.LinuxMemory{}, Unified: r.Unified}
	if r.CpuShares != 0 {
		out.Cpu.Shares = nriapi.UInt64(uint64(r.CpuShares))
	}
	if r.CpuQuota != 0 {
		out.Cpu.Quota = nriapi.Int64(r.CpuQuota)
	}
	if r.CpuPeriod != 0 {
		out.Cpu.Period = nriapi.UInt64(uint64(r.CpuPeriod))
	}
	if r.MemoryLimitInBytes != 0 {
		out.Memory.Limit = nriapi.Int64(r.MemoryLimitInBytes)
	}
	return out
}
