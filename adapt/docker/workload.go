// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// keySandbox names in problems what is no label or annotation.
const keySandbox = "sandbox"

// Pod reads a sandbox from the request that creates it. Its ID is empty: the daemon has given none.
func (c *Create) Pod() *workload.Pod { return pod(c.Labels, &c.host) }

// Pod reads an existing sandbox.
func (in *Inspect) Pod() *workload.Pod {
	p := pod(in.Config.Labels, &in.HostConfig)
	p.ID, p.PID = in.ID, in.State.Pid
	return p
}

// OrphanPod is the pod of a container whose sandbox cannot be read: names and place are known, annotations are not, and
// it has a problem that says so.
func OrphanPod(labels map[string]string, cgroupParent, reason string) *workload.Pod {
	own := make(map[string]string, 4)
	for _, key := range []string{LabelPodName, LabelPodNamespace, LabelPodUID} {
		own[key] = labels[key]
	}
	p := pod(own, &hostConfig{CgroupParent: cgroupParent})
	p.ID = labels[LabelSandboxID]
	p.Problems = append(p.Problems, protocol.Problem{Key: keySandbox, Reason: reason})
	return p
}

// Orphan is OrphanPod of this container.
func (c *Create) Orphan(reason string) *workload.Pod {
	return OrphanPod(c.Labels, c.host.CgroupParent, reason)
}

// Orphan is OrphanPod of this container.
func (in *Inspect) Orphan(reason string) *workload.Pod {
	return OrphanPod(in.Config.Labels, in.HostConfig.CgroupParent, reason)
}

// pod takes labels apart. A sandbox whose cgroup cannot be placed has no Cgroup and a problem.
func pod(all map[string]string, h *hostConfig) *workload.Pod {
	labels, annotations := split(all)
	ask, problems := protocol.ParsePod(labels, annotations)
	p := &workload.Pod{
		UID: all[LabelPodUID], Namespace: all[LabelPodNamespace], Name: all[LabelPodName],
		RuntimeHandler: h.Runtime,
		Ask:            ask,
		Problems:       problems,
	}
	p.Place(cgrouppath.Parent(h.CgroupParent))
	return p
}

// split separates labels from the annotations among them.
func split(all map[string]string) (labels, annotations map[string]string) {
	labels, annotations = make(map[string]string, len(all)), make(map[string]string, len(all))
	for k, v := range all {
		if name, ok := strings.CutPrefix(k, AnnotationPrefix); ok {
			annotations[name] = v
			continue
		}
		labels[k] = v
	}
	return labels, annotations
}

// Container reads a container from the request that creates it. ID and Cgroup are empty: the daemon names both.
func (c *Create) Container() *workload.Container {
	return &workload.Container{
		Name:     c.Labels[LabelContainerName],
		State:    workload.StateCreating,
		Base:     c.host.base(),
		EnvNames: workload.EnvNames(c.env),
		Applied:  applied(c.Labels),
	}
}

// Container reads an existing container. Where its HostConfig holds our values, Base is what was asked before us, put
// together from the marks: those given (newest first, from a registry or the ledger) and our label.
func (in *Inspect) Container(marks ...*protocol.Applied) *workload.Container {
	out := &workload.Container{
		ID: in.ID, Name: in.Config.Labels[LabelContainerName],
		State:    in.state(),
		Base:     in.HostConfig.base(),
		EnvNames: workload.EnvNames(in.Config.Env),
		PID:      in.State.Pid,
		Cgroup:   in.cgroup(),
		Applied:  applied(in.Config.Labels),
	}
	mark.Rebase(&out.Base, append(marks[:len(marks):len(marks)], out.Applied)...)
	return out
}

// cgroup is where the daemon puts a container: PARENT/ID with cgroupfs, docker-ID.scope below a slice; "" when the
// parent is not one of a pod's.
func (in *Inspect) cgroup() string {
	parent := in.HostConfig.CgroupParent
	dir, err := cgrouppath.Below(parent, in.ID)
	if err == nil && strings.HasSuffix(parent, ".slice") {
		dir, err = cgrouppath.Container(parent[strings.LastIndexByte(parent, '/')+1:] + ":docker:" + in.ID)
	}
	if parent == "" || err != nil {
		return ""
	}
	return dir
}

func (in *Inspect) state() workload.State {
	switch {
	case in.State.Running:
		return workload.StateRunning // paused and restarting included
	case in.State.Status == "created":
		return workload.StateCreated
	}
	return workload.StateStopped
}

// base reads what is asked for. Zero means "leave alone" in every field; an OOM score of 0 is what a process has anyway.
func (h *hostConfig) base() workload.Resources {
	out := h.resources.base()
	if h.OOMScoreAdj != 0 {
		out.OOMScoreAdj = unit.Some(int64(h.OOMScoreAdj))
	}
	return out
}

func (r *resources) base() workload.Resources {
	out := workload.Resources{
		Shares: opt(r.CPUShares), Quota: opt(r.CPUQuota), Period: opt(r.CPUPeriod),
		CPUs: r.CPUSetCPUs, Mems: r.CPUSetMems,
		MemoryLimit: opt(r.Memory),
	}
	if r.NanoCPUs > 0 { // the daemon makes a quota of it at the default period
		out.Quota = unit.Some(r.NanoCPUs / (1e9 / int64(unit.CFSPeriod)))
		out.Period = unit.Some(int64(unit.CFSPeriod))
	}
	return out
}

// Base is base with every field that the update states: the container's next base.
func (u *Update) Base(base workload.Resources) workload.Resources {
	r := u.res.base()
	for _, f := range []struct{ to, from *unit.Opt }{
		{&base.Shares, &r.Shares}, {&base.Quota, &r.Quota}, {&base.Period, &r.Period}, {&base.MemoryLimit, &r.MemoryLimit},
	} {
		if f.from.Set {
			*f.to = *f.from
		}
	}
	if r.CPUs != "" {
		base.CPUs = r.CPUs
	}
	if r.Mems != "" {
		base.Mems = r.Mems
	}
	return base
}

func opt(v int64) unit.Opt {
	if v == 0 {
		return unit.Opt{}
	}
	return unit.Some(v)
}
