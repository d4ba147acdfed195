// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package cri translates between the Container Runtime Interface and the model: requests and answers in, plans out as
// changed requests; and it asks a runtime for what it needs.
//
// Inputs are CRI messages as they come off the wire, outputs model/workload values and requests in which only the bytes
// of what a plan changes are new: unknown fields, order and encoding of all the rest stay. Only Lister talks; the rest is
// pure. Field numbers are those of the CRI API v1. It may import model, api/protocol and protobuf's wire format; never
// policy, kernel or daemon, and neither gRPC nor generated types, whose weight the daemons would carry.
package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// info is the part that is read of the "info" entry of a verbose answer. containerd tells all of it; CRI-O no config, whose parts
// that matter are annotations of its spec (see crio.go); cri-dockerd sandboxID and pid of a container only.
type info struct {
	SandboxID      string      `json:"sandboxID"`
	PID            int         `json:"pid"`
	RuntimeHandler string      `json:"runtimeHandler"`
	RuntimeSpec    runtimeSpec `json:"runtimeSpec"`
	Config         config      `json:"config"`
}

type runtimeSpec struct {
	Annotations map[string]string `json:"annotations"`
	Process     struct {
		Env         []string `json:"env"`
		OOMScoreAdj *int64   `json:"oomScoreAdj"`
	} `json:"process"`
	Linux struct {
		CgroupsPath string        `json:"cgroupsPath"`
		Resources   specResources `json:"resources"`
	} `json:"linux"`
}

type config struct {
	Linux struct {
		CgroupParent string    `json:"cgroup_parent"`
		Overhead     resources `json:"overhead"`
		Resources    resources `json:"resources"`
	} `json:"linux"`
	CDIDevices []struct {
		Name string `json:"name"`
	} `json:"CDI_devices"`
}

type resources struct {
	CPUShares   int64 `json:"cpu_shares"`
	CPUQuota    int64 `json:"cpu_quota"`
	CPUPeriod   int64 `json:"cpu_period"`
	MemoryLimit int64 `json:"memory_limit_in_bytes"`
}

// readInfo decodes the verbose part of an answer. A runtime that gives none leaves it zero.
func readInfo(m map[string]string) (info, error) {
	var out info
	text, ok := m["info"]
	if !ok {
		return out, nil
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return out, fmt.Errorf("read verbose status: %w", err)
	}
	return out, nil
}

// Pod reads a sandbox from a PodSandboxStatusResponse. PodSandboxStatus: id = 1, metadata = 2 (name = 1, uid = 2,
// namespace = 3), labels = 7, annotations = 8, runtime_handler = 9.
func Pod(raw []byte) (*workload.Pod, error) {
	p, _, err := readPod(raw)
	if err != nil {
		return nil, err
	}
	if p.Cgroup == "" {
		return nil, fmt.Errorf("place pod %s: %w", p.FullName(), errUntold)
	}
	return p, nil
}

// errUntold is the end of what can be read from an answer alone.
var errUntold = errors.New("the runtime does not tell its cgroup")

// readPod is Pod where the runtime may not tell the cgroup; based is false where it tells nothing of the pod's resources either.
func readPod(raw []byte) (p *workload.Pod, based bool, err error) {
	s, verbose, err := answer(raw)
	if err != nil {
		return nil, false, fmt.Errorf("read sandbox status: %w", err)
	}
	in, err := readInfo(verbose)
	if err != nil {
		return nil, false, err
	}
	meta, err1 := s.sub(2)
	labels, err2 := s.texts(7)
	annotations, err3 := s.texts(8)
	based, err4 := in.fromSpec()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, false, fmt.Errorf("read sandbox status: %w", err)
	}
	ask, problems := protocol.ParsePod(labels, annotations)
	p = &workload.Pod{
		ID: s.text(1), UID: meta.text(2), Namespace: meta.text(3), Name: meta.text(1),
		RuntimeHandler: s.text(9), Ask: ask, Problems: problems, PID: in.PID, Base: podBase(&in.Config),
	}
	if p.RuntimeHandler == "" {
		p.RuntimeHandler = in.RuntimeHandler
	}
	parent, own := in.Config.Linux.CgroupParent, in.RuntimeSpec.Linux.CgroupsPath
	if parent == "" && own == "" {
		return p, based, nil
	}
	dir, err := cgrouppath.Sandbox(parent, own)
	if err != nil {
		return nil, false, fmt.Errorf("place pod %s: %w", p.FullName(), err)
	}
	p.Place(dir, nil)
	return p, based, nil
}

// podBase is the sum of the containers plus the overhead, as the kubelet gives it to the pod's cgroup.
func podBase(c *config) workload.Resources {
	in, more := c.Linux.Resources, c.Linux.Overhead
	r := workload.Resources{Shares: opt(in.CPUShares), Quota: opt(in.CPUQuota), Period: opt(in.CPUPeriod), MemoryLimit: opt(in.MemoryLimit)}
	r.AddOverhead(&workload.Resources{Shares: opt(more.CPUShares), Quota: opt(more.CPUQuota), MemoryLimit: opt(more.MemoryLimit)})
	return r
}

func opt(v int64) unit.Opt {
	if v == 0 {
		return unit.Opt{}
	}
	return unit.Some(v)
}

// Container reads a container from its verbose status, and names its sandbox. Its resources in the status are those of
// the CRI requests: the kubelet's own, or a proxy's, or after an update what a plugin has made of them. Base is what was
// asked before any of us, put together from the marks: those given (newest first), the spec's and the request's. A
// runtime that tells no resources in the status (CRI before Kubernetes 1.26: containerd 1.6) tells those of its spec.
//
// ContainerStatus: id = 1, metadata = 2 (name = 1), state = 3, annotations = 13, resources = 16 (linux = 1).
func Container(raw []byte, marks ...*protocol.Applied) (c *workload.Container, sandbox string, err error) {
	r, err := readContainer(raw)
	if err != nil {
		return nil, "", err
	}
	if r.c.Cgroup == "" {
		return nil, "", fmt.Errorf("place container %s: %w", r.c.ID, errUntold)
	}
	mark.Rebase(&r.c.Base, r.marked(marks)...)
	return r.c, r.sandbox, nil
}

// read is a container's status as it came: Base still has our values, and Cgroup, sandbox and Base are empty where the runtime
// does not tell them.
type read struct {
	c       *workload.Container
	sandbox string
	// based: the runtime tells resources. marks are those it carries, newest first.
	based bool
	marks []*protocol.Applied
}

// marked are all marks on the container with those that are known of it.
func (r *read) marked(known []*protocol.Applied) []*protocol.Applied {
	return append(known[:len(known):len(known)], r.marks...)
}

func readContainer(raw []byte) (r read, err error) {
	s, verbose, err := answer(raw)
	if err != nil {
		return read{}, fmt.Errorf("read container status: %w", err)
	}
	in, err := readInfo(verbose)
	if err != nil {
		return read{}, err
	}
	meta, err1 := s.sub(2)
	both, err2 := s.sub(16)
	linux, err3 := both.sub(1)
	base, err4 := readResources(linux)
	annotations, err5 := s.texts(13)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return read{}, fmt.Errorf("read container status: %w", err)
	}
	path := in.RuntimeSpec.Linux.CgroupsPath
	r = read{sandbox: in.SandboxID, based: len(both) > 0 || path != ""}
	if len(both) == 0 {
		base = in.RuntimeSpec.Linux.Resources.base()
	}
	c := &workload.Container{ID: s.text(1), Name: meta.text(1), State: state(s.number(3)), PID: in.PID, Base: base}
	r.c = c
	if path != "" {
		if c.Cgroup, err = cgrouppath.Container(path); err != nil {
			return read{}, fmt.Errorf("place container %s: %w", c.ID, err)
		}
	}
	if score := in.RuntimeSpec.Process.OOMScoreAdj; score != nil && !c.Base.OOMScoreAdj.Set {
		c.Base.OOMScoreAdj = unit.Some(*score)
	}
	for _, kv := range in.RuntimeSpec.Process.Env {
		name, _, _ := strings.Cut(kv, "=")
		c.EnvNames = append(c.EnvNames, strings.Clone(name)) // values may be secrets and are not kept
	}
	for _, d := range in.Config.CDIDevices {
		c.CDIDevices = append(c.CDIDevices, d.Name)
	}
	for _, from := range []map[string]string{in.RuntimeSpec.Annotations, annotations} {
		if text, ok := from[protocol.AnnotationApplied]; ok {
			applied := parseApplied(text)
			r.marks = append(r.marks, applied)
			if c.Applied == nil {
				c.Applied = applied
			}
		}
	}
	return r, nil
}

// state reads CRI's ContainerState.
func state(n int64) workload.State {
	switch n {
	case 0:
		return workload.StateCreated
	case 1:
		return workload.StateRunning
	}
	return workload.StateStopped
}

// readResources reads LinuxContainerResources: cpu_period = 1, cpu_quota = 2, cpu_shares = 3, memory_limit_in_bytes = 4,
// oom_score_adj = 5, cpuset_cpus = 6, cpuset_mems = 7, unified = 9. Zero means that nobody asked, in CRI as in the model.
func readResources(m message) (workload.Resources, error) {
	unified, err := m.texts(9)
	return workload.Resources{
		Period: opt(m.number(1)), Quota: opt(m.number(2)), Shares: opt(m.number(3)), MemoryLimit: opt(m.number(4)),
		OOMScoreAdj: opt(m.number(5)), CPUs: m.text(6), Mems: m.text(7), Unified: unified,
	}, err
}
