// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"fmt"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/cgrouppath"
	"github.com/koord-rt/koord-rt/model/workload"
)

// SandboxConfig is what is read of a PodSandboxConfig: metadata = 1 (name = 1, uid = 2, namespace = 3, attempt = 4),
// labels = 6, annotations = 7, linux = 8 (cgroup_parent = 1, overhead = 4, resources = 5).
type SandboxConfig struct {
	Name, UID, Namespace string
	Attempt              uint32
	Labels, Annotations  map[string]string
	CgroupParent         string
	Overhead, Resources  Resources
}

func scanSandbox(raw []byte) (c SandboxConfig, err error) {
	var meta, linux []byte
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			meta = join(meta, s.value)
		case s.bytes(6):
			c.Labels, err = putPair(c.Labels, s.value)
		case s.bytes(7):
			c.Annotations, err = putPair(c.Annotations, s.value)
		case s.bytes(8):
			linux = join(linux, s.value)
		}
		if err != nil {
			return c, err
		}
	}
	if s.err != nil {
		return c, s.err
	}
	if err := c.scanMeta(meta); err != nil {
		return c, err
	}
	return c, c.scanLinux(linux)
}

func (c *SandboxConfig) scanMeta(raw []byte) error {
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			c.Name = string(s.value)
		case s.bytes(2):
			c.UID = string(s.value)
		case s.bytes(3):
			c.Namespace = string(s.value)
		case s.varint(4):
			c.Attempt = uint32(s.number)
		}
	}
	return s.err
}

func (c *SandboxConfig) scanLinux(raw []byte) error {
	var overhead, resources []byte
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			c.CgroupParent = string(s.value)
		case s.bytes(4):
			overhead = join(overhead, s.value)
		case s.bytes(5):
			resources = join(resources, s.value)
		}
	}
	if s.err != nil {
		return s.err
	}
	var err error
	if c.Overhead, err = scanResources(overhead); err != nil {
		return err
	}
	c.Resources, err = scanResources(resources)
	return err
}

// Pod is the sandbox in the model's words. id is "" before the runtime has given one; handler is the runtime handler,
// which only RunPodSandbox and the status tell. A sandbox whose cgroup cannot be placed has no Cgroup and a problem.
func (c *SandboxConfig) Pod(id, handler string) *workload.Pod {
	ask, problems := protocol.ParsePod(c.Labels, c.Annotations)
	p := &workload.Pod{
		ID: id, UID: c.UID, Namespace: c.Namespace, Name: c.Name, RuntimeHandler: handler,
		Ask: ask, Problems: problems, Base: PodResources(&c.Resources, &c.Overhead),
	}
	p.Place(cgrouppath.Parent(c.CgroupParent))
	return p
}

// PodResources is what the kubelet gives the pod's cgroup: the sum of its containers plus the overhead of its runtime
// class.
func PodResources(resources, overhead *Resources) workload.Resources {
	r, o := resources.limits(), overhead.limits()
	r.AddOverhead(&o)
	return r
}

// RunPodSandbox is a RunPodSandboxRequest: config = 1, runtime_handler = 2.
type RunPodSandbox struct {
	SandboxConfig
	Handler string
	raw     []byte
}

// ReadRunPodSandbox reads a request. It refers to raw, which must not change while it is in use.
func ReadRunPodSandbox(raw []byte) (*RunPodSandbox, error) {
	r := &RunPodSandbox{raw: raw}
	var config []byte
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			config = join(config, s.value)
		case s.bytes(2):
			r.Handler = string(s.value)
		}
	}
	err := s.err
	if err == nil {
		r.SandboxConfig, err = scanSandbox(config)
	}
	if err != nil {
		return nil, fmt.Errorf("read RunPodSandboxRequest: %w", err)
	}
	return r, nil
}

// SandboxPatch is what to change in a RunPodSandboxRequest. Empty fields leave what stands. Runtimes of processes use
// the resources for NRI and the status only; those of virtual machines size the machine with them.
type SandboxPatch struct {
	Labels, Annotations []Pair
	CgroupParent        string
	Overhead, Resources ResourcesPatch
}

// Patch is the request with the changes, everything else byte for byte.
func (r *RunPodSandbox) Patch(p *SandboxPatch) ([]byte, error) {
	if p == nil {
		return r.raw, nil
	}
	var linux []edit
	if p.CgroupParent != "" {
		linux = append(linux, edit{num: 1, verb: setText, text: p.CgroupParent})
	}
	linux = inside(linux, 4, p.Overhead.edits())
	linux = inside(linux, 5, p.Resources.edits())
	config := appendPairs(nil, 6, p.Labels)
	config = appendPairs(config, 7, p.Annotations)
	config = inside(config, 8, linux)
	return patched(r.raw, inside(nil, 1, config), "RunPodSandboxRequest")
}

func patched(raw []byte, edits []edit, name string) ([]byte, error) {
	out, err := patch(raw, edits)
	if err != nil {
		return nil, fmt.Errorf("patch %s: %w", name, err)
	}
	return out, nil
}
