// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Container reads a container of a sandbox. Where its spec holds our values, Base is what was asked before us, put
// together from the marks: those given (newest first, from the registry or the ledger) and our annotation.
func Container(p *api.PodSandbox, c *api.Container, marks ...*protocol.Applied) *workload.Container {
	out := &workload.Container{
		ID: c.GetId(), Name: c.GetName(),
		State:      state(c.GetState()),
		Base:       Resources(c.GetLinux().GetResources()),
		EnvNames:   workload.EnvNames(c.GetEnv()),
		CDIDevices: cdiNames(c.GetCDIDevices()),
		PID:        int(c.GetPid()),
	}
	if adj := c.GetLinux().GetOomScoreAdj(); adj != nil {
		out.Base.OOMScoreAdj = unit.Some(adj.GetValue())
	}
	if id := c.GetLinux().GetRdt().GetClosId(); id != nil && out.Base.RDT == "" {
		out.Base.RDT = id.GetValue()
	}
	out.Cgroup = Cgroup(p, c)
	if text, ok := c.GetAnnotations()[protocol.AnnotationApplied]; ok {
		if applied, err := protocol.ParseApplied(text); err == nil {
			out.Applied = &applied
		}
	}
	if out.Applied != nil || len(marks) > 0 {
		if s := c.GetLinux().GetResources().GetCpu().GetShares(); s != nil && s.GetValue() == 0 {
			out.Base.Shares = unit.Some(0) // of an idle group, or nobody's
		}
		mark.Rebase(&out.Base, append(marks[:len(marks):len(marks)], out.Applied)...)
		if out.Base.Shares.V == 0 {
			out.Base.Shares = unit.Opt{}
		}
	}
	return out
}

// Cgroup is the container's cgroup, "" when it cannot be placed. CRI-O does not always tell cgroupsPath before the
// container exists.
func Cgroup(p *api.PodSandbox, c *api.Container) string {
	if dir, err := cgrouppath.Container(c.GetLinux().GetCgroupsPath()); err == nil {
		return dir
	}
	parent, err := cgrouppath.Sandbox(p.GetLinux().GetCgroupParent(), p.GetLinux().GetCgroupsPath())
	if err != nil {
		return ""
	}
	dir, err := cgrouppath.Below(parent, c.GetId())
	if err != nil {
		return ""
	}
	return dir
}

// Resources reads a resource block. Zero means "leave alone" everywhere in NRI and is absent here.
func Resources(r *api.LinuxResources) workload.Resources {
	var out workload.Resources
	if cpu := r.GetCpu(); cpu != nil {
		out.Shares = opt(int64(cpu.GetShares().GetValue()))
		out.Quota = opt(cpu.GetQuota().GetValue())
		out.Period = opt(int64(cpu.GetPeriod().GetValue()))
		out.CPUs, out.Mems = cpu.GetCpus(), cpu.GetMems()
	}
	out.MemoryLimit = opt(r.GetMemory().GetLimit().GetValue())
	out.Unified = r.GetUnified()
	out.RDT = r.GetRdtClass().GetValue()
	return out
}

func opt(v int64) unit.Opt {
	if v == 0 {
		return unit.Opt{}
	}
	return unit.Some(v)
}

func state(s api.ContainerState) workload.State {
	switch s {
	case api.ContainerState_CONTAINER_CREATED:
		return workload.StateCreated
	case api.ContainerState_CONTAINER_RUNNING, api.ContainerState_CONTAINER_PAUSED:
		return workload.StateRunning
	case api.ContainerState_CONTAINER_STOPPED:
		return workload.StateStopped
	}
	return workload.StateCreating
}

func cdiNames(devices []*api.CDIDevice) []string {
	if len(devices) == 0 {
		return nil
	}
	out := make([]string, 0, len(devices))
	for _, d := range devices {
		out = append(out, d.GetName())
	}
	return out
}
