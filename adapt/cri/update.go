// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"fmt"

	"github.com/koord-rt/koord-rt/model/workload"
)

// UpdateContainer is an UpdateContainerResourcesRequest: container_id = 1, linux = 2, annotations = 4.
type UpdateContainer struct {
	ID          string
	Resources   Resources
	Annotations map[string]string
	raw         []byte
}

// ReadUpdateContainer reads a request. It refers to raw, which must not change while it is in use.
func ReadUpdateContainer(raw []byte) (*UpdateContainer, error) {
	r := &UpdateContainer{raw: raw}
	var linux []byte
	var err error
	s := scanner{rest: raw}
	for err == nil && s.next() {
		switch {
		case s.bytes(1):
			r.ID = string(s.value)
		case s.bytes(2):
			linux = join(linux, s.value)
		case s.bytes(4):
			r.Annotations, err = putPair(r.Annotations, s.value)
		}
	}
	if err == nil {
		err = s.err
	}
	if err == nil {
		r.Resources, err = scanResources(linux)
	}
	if err != nil {
		return nil, fmt.Errorf("read UpdateContainerResourcesRequest: %w", err)
	}
	return r, nil
}

// Stated is what the kubelet asks for; what it does not state stays (model/mark.Overlay). The OOM score of an update is
// dropped by every runtime.
func (r *UpdateContainer) Stated() workload.Resources { return r.Resources.limits() }

// UpdatePatch is what to change in an UpdateContainerResourcesRequest.
type UpdatePatch struct {
	Resources   ResourcesPatch
	Annotations []Pair
}

// Patch is the request with the changes, everything else byte for byte.
func (r *UpdateContainer) Patch(p *UpdatePatch) ([]byte, error) {
	if p == nil {
		return r.raw, nil
	}
	root := inside(nil, 2, p.Resources.edits())
	return patched(r.raw, appendPairs(root, 4, p.Annotations), "UpdateContainerResourcesRequest")
}

// UpdatePod is an UpdatePodSandboxResourcesRequest: pod_sandbox_id = 1, overhead = 2, resources = 3.
type UpdatePod struct {
	ID                  string
	Overhead, Resources Resources
	raw                 []byte
}

// ReadUpdatePod reads a request. It refers to raw, which must not change while it is in use.
func ReadUpdatePod(raw []byte) (*UpdatePod, error) {
	r := &UpdatePod{raw: raw}
	var overhead, resources []byte
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			r.ID = string(s.value)
		case s.bytes(2):
			overhead = join(overhead, s.value)
		case s.bytes(3):
			resources = join(resources, s.value)
		}
	}
	err := s.err
	if err == nil {
		r.Overhead, err = scanResources(overhead)
	}
	if err == nil {
		r.Resources, err = scanResources(resources)
	}
	if err != nil {
		return nil, fmt.Errorf("read UpdatePodSandboxResourcesRequest: %w", err)
	}
	return r, nil
}

// Base is the pod's base after the update.
func (r *UpdatePod) Base() workload.Resources { return PodResources(&r.Resources, &r.Overhead) }

// Patch is the request with the changes, everything else byte for byte. The kubelet writes the pod's cgroup itself:
// runtimes of processes only pass these values on.
func (r *UpdatePod) Patch(overhead, resources *ResourcesPatch) ([]byte, error) {
	var root []edit
	if overhead != nil {
		root = inside(root, 2, overhead.edits())
	}
	if resources != nil {
		root = inside(root, 3, resources.edits())
	}
	return patched(r.raw, root, "UpdatePodSandboxResourcesRequest")
}

// ReadID reads the id, which is field 1, of the requests StartContainer, StopContainer, RemoveContainer, ContainerStatus,
// StopPodSandbox, RemovePodSandbox and PodSandboxStatus, and of the responses of RunPodSandbox and CreateContainer.
func ReadID(raw []byte) (string, error) {
	id, err := firstText(raw)
	if err != nil {
		return "", fmt.Errorf("read id: %w", err)
	}
	return string(id), nil
}
