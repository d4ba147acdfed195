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

// ReadSandboxes reads a ListPodSandboxResponse: items = 1.
func ReadSandboxes(raw []byte) ([]workload.ListedPod, error) {
	return readList(raw, "ListPodSandboxResponse", scanListedPod)
}

// ReadContainers reads a ListContainersResponse: containers = 1.
func ReadContainers(raw []byte) ([]workload.ListedContainer, error) {
	return readList(raw, "ListContainersResponse", func(raw []byte) (workload.ListedContainer, error) {
		one, _, err := scanContainer(raw, containerFields{sandbox: 2, metadata: 3, state: 6, annotations: 9})
		return one, err
	})
}

// readList reads a message of that name whose field 1 is a list.
func readList[T any](raw []byte, name string, read func([]byte) (T, error)) ([]T, error) {
	var out []T
	s := scanner{rest: raw}
	for s.next() {
		if !s.bytes(1) {
			continue
		}
		one, err := read(s.value)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		out = append(out, one)
	}
	if s.err != nil {
		return nil, fmt.Errorf("read %s: %w", name, s.err)
	}
	return out, nil
}

// scanListedPod reads a PodSandbox: id = 1, metadata = 2, state = 3, runtime_handler = 7. Labels (5) and annotations (6) are
// left out: the list is read every two seconds, and what a pod asks for only of pods that are new, from their own record.
func scanListedPod(raw []byte) (out workload.ListedPod, err error) {
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
		case s.bytes(7):
			handler = string(s.value)
		}
	}
	if s.err != nil {
		return out, s.err
	}
	err = c.scanMeta(meta)
	out.Attempt = c.Attempt
	out.Pod = &workload.Pod{ID: id, UID: c.UID, Namespace: c.Namespace, Name: c.Name, RuntimeHandler: handler}
	return out, err
}

// containerFields are the numbers of what a Container and a ContainerStatus both tell, beside id = 1; 0 for what one of
// them lacks.
type containerFields struct{ sandbox, metadata, state, annotations, resources protowire.Number }

// scanContainer reads a Container or a ContainerStatus. resources is the embedded message, nil when there is none.
func scanContainer(raw []byte, f containerFields) (out workload.ListedContainer, resources []byte, err error) {
	c := &workload.Container{State: state(0)}
	out.Container = c
	var meta []byte
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			c.ID = string(s.value)
		case s.bytes(f.sandbox):
			out.Sandbox = string(s.value)
		case s.bytes(f.metadata):
			meta = join(meta, s.value)
		case s.varint(f.state):
			c.State = state(int64(int32(s.number)))
		case s.bytes(f.annotations):
			c.Applied, err = scanApplied(c.Applied, s.value)
		case s.bytes(f.resources):
			resources = join(resources, s.value)
		}
		if err != nil {
			return out, nil, err
		}
	}
	if s.err != nil {
		return out, nil, s.err
	}
	c.Name, out.Attempt, err = containerMeta(meta)
	return out, resources, err
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
	c, err := scanStatus(raw)
	if err != nil {
		return nil, fmt.Errorf("read ContainerStatusResponse: %w", err)
	}
	mark.Rebase(&c.Base, append(marks[:len(marks):len(marks)], c.Applied)...)
	return c, nil
}

func scanStatus(raw []byte) (*workload.Container, error) {
	status, err := only(raw, 1)
	if err != nil {
		return nil, err
	}
	one, both, err := scanContainer(status, containerFields{metadata: 2, state: 3, annotations: 13, resources: 16})
	if err != nil {
		return nil, err
	}
	linux, err := only(both, 1)
	if err != nil {
		return nil, err
	}
	r, err := scanResources(linux)
	one.Container.Base = r.limits()
	one.Container.Base.OOMScoreAdj = opt(r.OOMScoreAdj)
	return one.Container, err
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
