// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/workload"
)

// CreateContainer is what is read of a CreateContainerRequest: pod_sandbox_id = 1, config = 2, sandbox_config = 3. Of
// ContainerConfig: metadata = 1 (name = 1, attempt = 2), envs = 6 (key = 1), annotations = 10, linux = 15 (resources = 1),
// CDI_devices = 17 (name = 1).
type CreateContainer struct {
	Sandbox, Name string
	Attempt       uint32
	Resources     Resources
	// EnvNames are the names of the variables that the pod states; those of the image are not in the request.
	EnvNames, CDIDevices []string
	// Applied is a mark that the request already carries, nil when there is none.
	Applied *protocol.Applied

	raw, config, sandbox []byte
}

// ReadCreateContainer reads a request. It refers to raw, which must not change while it is in use.
func ReadCreateContainer(raw []byte) (*CreateContainer, error) {
	r := &CreateContainer{raw: raw}
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			r.Sandbox = string(s.value)
		case s.bytes(2):
			r.config = join(r.config, s.value)
		case s.bytes(3):
			r.sandbox = join(r.sandbox, s.value)
		}
	}
	err := s.err
	if err == nil {
		err = r.scanConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("read CreateContainerRequest: %w", err)
	}
	return r, nil
}

func (r *CreateContainer) scanConfig() (err error) {
	var meta, linux []byte
	var envs nameList
	s := scanner{rest: r.config}
	for s.next() {
		switch {
		case s.bytes(1):
			meta = join(meta, s.value)
		case s.bytes(fieldEnvs):
			err = envs.addFirst(s.value)
		case s.bytes(fieldAnnotations):
			r.Applied, err = scanApplied(r.Applied, s.value)
		case s.bytes(fieldLinux):
			linux = join(linux, s.value)
		case s.bytes(fieldCDIDevices):
			var name []byte
			name, err = firstText(s.value)
			r.CDIDevices = append(r.CDIDevices, string(name))
		}
		if err != nil {
			return err
		}
	}
	if s.err != nil {
		return s.err
	}
	r.EnvNames = envs.names()
	if r.Name, r.Attempt, err = containerMeta(meta); err != nil {
		return err
	}
	resources, err := only(linux, 1)
	if err != nil {
		return err
	}
	r.Resources, err = scanResources(resources)
	return err
}

// containerMeta reads a ContainerMetadata.
func containerMeta(raw []byte) (name string, attempt uint32, err error) {
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			name = string(s.value)
		case s.varint(2):
			attempt = uint32(s.number)
		}
	}
	return name, attempt, s.err
}

// parseApplied is nil for a text that is no mark.
func parseApplied(text string) *protocol.Applied {
	applied, err := protocol.ParseApplied(text)
	if err != nil {
		return nil
	}
	return &applied
}

// nameList collects names in one piece of memory: a container has dozens of variables. Their values are not kept.
type nameList struct {
	text []byte
	ends []int
}

// addFirst adds the text in field 1.
func (l *nameList) addFirst(raw []byte) error {
	name, err := firstText(raw)
	if l.ends == nil {
		l.text, l.ends = make([]byte, 0, 1024), make([]int, 0, 64)
	}
	l.text = append(l.text, name...)
	l.ends = append(l.ends, len(l.text))
	return err
}

func (l *nameList) names() []string {
	if len(l.ends) == 0 {
		return nil
	}
	text, start := string(l.text), 0
	out := make([]string, len(l.ends))
	for i, end := range l.ends {
		out[i], start = text[start:end], end
	}
	return out
}

// only is the embedded message of a number, nil when there is none.
func only(raw []byte, num protowire.Number) ([]byte, error) {
	var out []byte
	s := scanner{rest: raw}
	for s.next() {
		if s.bytes(num) {
			out = join(out, s.value)
		}
	}
	return out, s.err
}

// Container is the container in the model's words. It has no ID, Cgroup and PID yet: the runtime's answer brings the
// first, Cgroup (the function) and the status the others.
func (r *CreateContainer) Container() *workload.Container {
	c := &workload.Container{Name: r.Name, Base: r.Resources.Base(), EnvNames: r.EnvNames, CDIDevices: r.CDIDevices, Applied: r.Applied}
	mark.Rebase(&c.Base, r.Applied)
	return c
}

// SandboxConfig reads the sandbox's configuration, which the kubelet sends along.
func (r *CreateContainer) SandboxConfig() (SandboxConfig, error) {
	c, err := scanSandbox(r.sandbox)
	if err != nil {
		return c, fmt.Errorf("read CreateContainerRequest: sandbox_config: %w", err)
	}
	return c, nil
}

// Envs, Annotations and Labels read more of the container's configuration, for whoever needs all of it. The values of
// variables may be secrets: they are never logged or kept.
func (r *CreateContainer) Envs() ([]Pair, error) {
	var out []Pair
	s := scanner{rest: r.config}
	for s.next() {
		if s.bytes(fieldEnvs) {
			key, value, err := pair(s.value)
			if err != nil {
				return nil, err
			}
			out = append(out, Pair{string(key), string(value)})
		}
	}
	return out, s.err
}

// Annotations of the container's configuration.
func (r *CreateContainer) Annotations() (map[string]string, error) {
	return pairs(r.config, fieldAnnotations)
}

// Labels of the container's configuration.
func (r *CreateContainer) Labels() (map[string]string, error) { return pairs(r.config, fieldLabels) }

// pairs reads a map.
func pairs(raw []byte, num protowire.Number) (out map[string]string, err error) {
	s := scanner{rest: raw}
	for s.next() {
		if s.bytes(num) {
			if out, err = putPair(out, s.value); err != nil {
				return nil, err
			}
		}
	}
	return out, s.err
}

// Device is a device node: the path in the container, the host's, and the cgroup's permissions ("rwm").
type Device struct{ Path, Host, Permissions string }

// Mount is a bind mount. Propagation is CRI's MountPropagation: 0 private, 1 from the host, 2 both ways.
type Mount struct {
	Path, Host  string
	ReadOnly    bool
	Propagation int64
}

// ContainerPatch is what to change in a CreateContainerRequest. Empty fields leave what stands; an entry whose key
// (variable, path, name) is there already is changed in its place, another is added at the end.
type ContainerPatch struct {
	Resources           ResourcesPatch
	Envs                []Pair
	DropEnvs            bool // the request's variables are all taken out first
	Mounts              []Mount
	Devices             []Device
	CDIDevices          []string
	Labels, Annotations []Pair
	// CgroupParent is the sandbox's, as the request repeats it.
	CgroupParent string
}

// Patch is the request with the changes, everything else byte for byte.
func (r *CreateContainer) Patch(p *ContainerPatch) ([]byte, error) {
	if p == nil {
		return r.raw, nil
	}
	root := inside(make([]edit, 0, 2), 2, p.config())
	if p.CgroupParent != "" {
		linux := []edit{{num: 1, verb: setText, text: p.CgroupParent}}
		root = inside(root, 3, inside(nil, 8, linux))
	}
	return patched(r.raw, root, "CreateContainerRequest")
}

// config are the edits of ContainerConfig.
func (p *ContainerPatch) config() []edit {
	var out []edit
	if p.DropEnvs {
		out = append(grown(out), edit{num: fieldEnvs, verb: drop})
	}
	out = appendPairs(out, fieldEnvs, p.Envs)
	for i := range p.Mounts {
		out = append(grown(out), p.Mounts[i].edit())
	}
	for _, d := range p.Devices {
		out = append(grown(out), edit{num: fieldDevices, verb: setEntry, text: d.Path, sub: []edit{
			{num: 2, verb: setText, text: d.Host}, {num: 3, verb: setText, text: d.Permissions},
		}})
	}
	out = appendPairs(out, fieldLabels, p.Labels)
	out = appendPairs(out, fieldAnnotations, p.Annotations)
	out = inside(out, fieldLinux, inside(nil, 1, p.Resources.edits()))
	for _, name := range p.CDIDevices {
		out = append(grown(out), edit{num: fieldCDIDevices, verb: setEntry, text: name})
	}
	return out
}

func (m *Mount) edit() edit {
	readOnly := int64(0)
	if m.ReadOnly {
		readOnly = 1
	}
	return edit{num: fieldMounts, verb: setEntry, text: m.Path, sub: []edit{
		{num: 2, verb: setText, text: m.Host}, {num: 3, verb: setNumber, number: readOnly}, {num: 5, verb: setNumber, number: m.Propagation},
	}}
}
