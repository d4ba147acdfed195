// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"encoding/json"
	"fmt"
)

// Labels that dockershim and cri-dockerd put on sandboxes and containers.
const (
	LabelType          = "io.kubernetes.docker.type" // TypeSandbox or TypeContainer
	LabelSandboxID     = "io.kubernetes.sandbox.id"  // on containers
	LabelContainerName = "io.kubernetes.container.name"
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	// AnnotationPrefix marks the labels that carry annotations: Docker has labels only.
	AnnotationPrefix = "annotation."

	TypeSandbox   = "podsandbox"
	TypeContainer = "container"
)

// resources are the fields that create and update share, those that are read (swagger "Resources").
type resources struct {
	CPUShares  int64  `json:"CpuShares"`  // cpu.shares, 0 = leave alone
	CPUPeriod  int64  `json:"CpuPeriod"`  // µs, 0 = leave alone
	CPUQuota   int64  `json:"CpuQuota"`   // µs per period, -1 unlimited, 0 = leave alone
	NanoCPUs   int64  `json:"NanoCpus"`   // 10⁻⁹ CPUs; excludes period and quota
	CPUSetCPUs string `json:"CpusetCpus"` // CPU list
	CPUSetMems string `json:"CpusetMems"` // node list
	Memory     int64  // bytes, 0 = unlimited (create) or leave alone (update)
	MemorySwap int64  // bytes of memory and swap together, -1 unlimited, 0 = the daemon's default
}

// hostConfig is the part that is read of a HostConfig.
type hostConfig struct {
	resources
	OOMScoreAdj  int `json:"OomScoreAdj"`
	CgroupParent string
	Runtime      string
	Binds        []string
	Mounts       []struct{ Target string }

	Devices              []json.RawMessage
	DeviceRequests       []json.RawMessage
	BlkioDeviceReadBps   []json.RawMessage
	BlkioDeviceWriteBps  []json.RawMessage
	BlkioDeviceReadIOps  []json.RawMessage
	BlkioDeviceWriteIOps []json.RawMessage
}

// Create is the body of POST /containers/create.
type Create struct {
	// Labels of the container, annotations included.
	Labels map[string]string

	env        []string
	host       hostConfig
	root       object
	hostObject object // its raw is nil without a HostConfig
}

// ParseCreate reads a body. It keeps raw and never writes to it. Errors are ErrBody and ErrAmbiguous.
func ParseCreate(raw []byte) (*Create, error) {
	root, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	c := &Create{root: root}
	for key, out := range map[string]any{"Labels": &c.Labels, "Env": &c.env} {
		v, err := root.get(key)
		if err == nil && v != nil {
			err = decode(v, out)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
	}
	v, err := root.get("HostConfig")
	if err != nil || v == nil {
		return c, err
	}
	if c.hostObject, err = parseObject(v); err != nil {
		return nil, fmt.Errorf("read HostConfig: %w", err)
	}
	if err := decode(v, &c.host); err != nil {
		return nil, fmt.Errorf("read HostConfig: %w", err)
	}
	return c, nil
}

// Raw is the body as it came.
func (c *Create) Raw() []byte { return c.root.raw }

// Type is TypeSandbox, TypeContainer, or "" for what Kubernetes has nothing to do with.
func (c *Create) Type() string { return typeOf(c.Labels) }

// SandboxID is the id of the container's sandbox, "" for a sandbox.
func (c *Create) SandboxID() string { return c.Labels[LabelSandboxID] }

func typeOf(labels map[string]string) string {
	switch t := labels[LabelType]; t {
	case TypeSandbox, TypeContainer:
		return t
	}
	return ""
}

// Update is the body of POST /containers/ID/update.
type Update struct {
	res  resources
	root object
}

// ParseUpdate reads a body. It keeps raw and never writes to it. Errors are ErrBody and ErrAmbiguous.
func ParseUpdate(raw []byte) (*Update, error) {
	root, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	u := &Update{root: root}
	if err := decode(raw, &u.res); err != nil {
		return nil, err
	}
	return u, nil
}

// Raw is the body as it came.
func (u *Update) Raw() []byte { return u.root.raw }

// Created is the container that this body asks for, under the id that the daemon has given it: what an Inspect would tell
// right after the creation, had nothing been changed.
func (c *Create) Created(id string) *Inspect {
	in := &Inspect{ID: id, HostConfig: c.host}
	in.State.Status = "created"
	in.Config.Labels, in.Config.Env = c.Labels, c.env
	return in
}

// ParseCreated reads the id from the reply of POST /containers/create.
func ParseCreated(raw []byte) (id string, err error) {
	var reply struct{ ID string }
	if err := decode(raw, &reply); err != nil {
		return "", err
	}
	if reply.ID == "" {
		return "", fmt.Errorf("%w: a reply without Id", ErrBody)
	}
	return reply.ID, nil
}

// Inspect is what is read of the reply of GET /containers/ID/json.
type Inspect struct {
	ID    string
	Name  string // with a leading slash, as the daemon writes it
	State struct {
		Status  string
		Running bool
		Pid     int
	}
	Config struct {
		Labels map[string]string
		Env    []string
	}
	HostConfig hostConfig
}

// ParseInspect reads a reply. Errors are ErrBody.
func ParseInspect(raw []byte) (*Inspect, error) {
	var in Inspect
	if err := decode(raw, &in); err != nil {
		return nil, err
	}
	if in.ID == "" {
		return nil, fmt.Errorf("%w: an inspect reply without Id", ErrBody)
	}
	return &in, nil
}

// Type is TypeSandbox, TypeContainer, or "" for what Kubernetes has nothing to do with.
func (in *Inspect) Type() string { return typeOf(in.Config.Labels) }

// SandboxID is the id of the container's sandbox, "" for a sandbox.
func (in *Inspect) SandboxID() string { return in.Config.Labels[LabelSandboxID] }

// ParseList reads the ids from the reply of GET /containers/json, in its order.
func ParseList(raw []byte) ([]string, error) {
	var list []struct{ ID string }
	if err := decode(raw, &list); err != nil {
		return nil, err
	}
	out := make([]string, 0, len(list))
	for _, c := range list {
		if c.ID != "" {
			out = append(out, c.ID)
		}
	}
	return out, nil
}

// ParseVersion reads the daemon's release from the reply of GET /version.
func ParseVersion(raw []byte) (string, error) {
	var reply struct{ Version string }
	if err := decode(raw, &reply); err != nil {
		return "", err
	}
	if reply.Version == "" {
		return "", fmt.Errorf("%w: a version reply without Version", ErrBody)
	}
	return reply.Version, nil
}
