// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"fmt"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/workload"
)

// ListedSandbox is an entry of ListPodSandbox. Its Pod has no Cgroup, Base and PID: those are in the verbose status.
type ListedSandbox struct {
	Pod     *workload.Pod
	Attempt uint32
	Ready   bool
}

// ListedContainer is an entry of ListContainers. Its Container has no Base, Cgroup and PID: those are in the status.
type ListedContainer struct {
	Container *workload.Container
	Sandbox   string
	Attempt   uint32
}

// ReadSandboxes reads a ListPodSandboxResponse: items = 1.
func ReadSandboxes(raw []byte) ([]ListedSandbox, error) {
	var out []ListedSandbox
	s := scanner{rest: raw}
	for s.next() {
		if s.bytes(1) {
			one, err := scanListedSandbox(s.value)
			if err != nil {
				return nil, fmt.Errorf("read ListPodSandboxResponse: %w", err)
			}
			out = append(out, one)
		}
	}
	if s.err != nil {
		return nil, fmt.Errorf("read ListPodSandboxResponse: %w", s.err)
	}
	return out, nil
}

// scanListedSandbox reads a PodSandbox: id = 1, metadata = 2, state = 3, labels = 5, annotations = 6, runtime_handler = 7.
func scanListedSandbox(raw []byte) (out ListedSandbox, err error) {
	var c SandboxConfig
	var id, handler string
	var meta []byte
	out.Ready = true // SANDBOX_READY is 0, which is not sent
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			id = string(s.value)
		case s.bytes(2):
			meta = join(meta, s.value)
		case s.varint(3):
			out.Ready = int32(s.number) == 0
		case s.bytes(5):
			c.Labels, err = putPair(c.Labels, s.value)
		case s.bytes(6):
			c.Annotations, err = putPair(c.Annotations, s.value)
		case s.bytes(7):
			handler = string(s.value)
		}
		if err != nil {
			return out, err
		}
	}
	if s.err != nil {
		return out, s.err
	}
	err = c.scanMeta(meta)
	ask, problems := protocol.ParsePod(c.Labels, c.Annotations)
	out.Attempt = c.Attempt
	out.Pod = &workload.Pod{
		ID: id, UID: c.UID, Namespace: c.Namespace, Name: c.Name, RuntimeHandler: handler, Ask: ask, Problems: problems,
	}
	return out, err
}

// ReadContainers reads a ListContainersResponse: containers = 1.
func ReadContainers(raw []byte) ([]ListedContainer, error) {
	var out []ListedContainer
	s := scanner{rest: raw}
	for s.next() {
		if s.bytes(1) {
			one, err := scanListedContainer(s.value)
			if err != nil {
				return nil, fmt.Errorf("read ListContainersResponse: %w", err)
			}
			out = append(out, one)
		}
	}
	if s.err != nil {
		return nil, fmt.Errorf("read ListContainersResponse: %w", s.err)
	}
	return out, nil
}

// scanListedContainer reads a Container: id = 1, pod_sandbox_id = 2, metadata = 3, state = 6, annotations = 9.
func scanListedContainer(raw []byte) (out ListedContainer, err error) {
	c := &workload.Container{State: state(0)}
	out.Container = c
	var meta []byte
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			c.ID = string(s.value)
		case s.bytes(2):
			out.Sandbox = string(s.value)
		case s.bytes(3):
			meta = join(meta, s.value)
		case s.varint(6):
			c.State = state(int64(int32(s.number)))
		case s.bytes(9):
			c.Applied, err = scanApplied(c.Applied, s.value)
		}
		if err != nil {
			return out, err
		}
	}
	if s.err != nil {
		return out, s.err
	}
	c.Name, out.Attempt, err = containerMeta(meta)
	return out, err
}

// scanApplied is the mark of an annotation's entry, or the one already had.
func scanApplied(had *protocol.Applied, entry []byte) (*protocol.Applied, error) {
	key, value, err := pair(entry)
	if err != nil || string(key) != protocol.AnnotationApplied {
		return had, err
	}
	return parseApplied(string(value)), nil
}

// ReadContainerStatus reads a ContainerStatusResponse that need not be verbose: status = 1; of it id = 1, metadata = 2,
// state = 3, annotations = 13, resources = 16 (linux = 1). The runtime's resources are those of the last request that it
// saw, ours: Base is what was asked before us, put together from the marks given (newest first: the ledger's, after a
// resize the only ones) and the container's annotation. There is no Cgroup, no PID, and no OOM score but the one stated.
func ReadContainerStatus(raw []byte, marks ...*protocol.Applied) (*workload.Container, error) {
	c := &workload.Container{}
	status, err := only(raw, 1)
	if err == nil {
		err = scanStatus(c, status)
	}
	if err != nil {
		return nil, fmt.Errorf("read ContainerStatusResponse: %w", err)
	}
	mark.Rebase(&c.Base, append(marks[:len(marks):len(marks)], c.Applied)...)
	return c, nil
}

func scanStatus(c *workload.Container, raw []byte) (err error) {
	var meta, both []byte
	c.State = state(0)
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			c.ID = string(s.value)
		case s.bytes(2):
			meta = join(meta, s.value)
		case s.varint(3):
			c.State = state(int64(int32(s.number)))
		case s.bytes(13):
			c.Applied, err = scanApplied(c.Applied, s.value)
		case s.bytes(16):
			both = join(both, s.value)
		}
		if err != nil {
			return err
		}
	}
	if s.err != nil {
		return s.err
	}
	if c.Name, _, err = containerMeta(meta); err != nil {
		return err
	}
	linux, err := only(both, 1)
	if err != nil {
		return err
	}
	r, err := scanResources(linux)
	c.Base = r.limits()
	c.Base.OOMScoreAdj = opt(r.OOMScoreAdj)
	return err
}

// Version is what a runtime says of itself.
type Version struct{ Name, Version, API string }

// ReadVersion reads a VersionResponse: runtime_name = 2, runtime_version = 3, runtime_api_version = 4.
func ReadVersion(raw []byte) (Version, error) {
	var v Version
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(2):
			v.Name = string(s.value)
		case s.bytes(3):
			v.Version = string(s.value)
		case s.bytes(4):
			v.API = string(s.value)
		}
	}
	if s.err != nil {
		return Version{}, fmt.Errorf("read VersionResponse: %w", s.err)
	}
	return v, nil
}

// ReadCgroupDriver reads a RuntimeConfigResponse: linux = 1 (cgroup_driver = 1: 0 systemd, 1 cgroupfs). known is false
// when the answer does not tell.
func ReadCgroupDriver(raw []byte) (systemd, known bool, err error) {
	linux, err := only(raw, 1)
	if err != nil {
		return false, false, fmt.Errorf("read RuntimeConfigResponse: %w", err)
	}
	driver := uint64(0)
	s := scanner{rest: linux}
	for s.next() {
		if s.varint(1) {
			driver = s.number
		}
	}
	if s.err != nil {
		return false, false, fmt.Errorf("read RuntimeConfigResponse: %w", s.err)
	}
	return driver == 0, linux != nil && driver <= 1, nil
}
