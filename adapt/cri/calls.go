// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/workload"
)

// listLimit bounds a call that answers for the whole node.
const listLimit = 10 * time.Second

// ErrNotFound is what a runtime answers about a pod or container that it does not have, any more.
var ErrNotFound = errors.New("not found by the runtime")

// ErrUnimplemented is what a runtime answers to a call that it does not know, as containerd before 2.0 to RuntimeConfig.
var ErrUnimplemented = errors.New("not implemented by the runtime")

const (
	methodVersion        = "/runtime.v1.RuntimeService/Version"
	methodRuntimeConfig  = "/runtime.v1.RuntimeService/RuntimeConfig"
	methodListPodSandbox = "/runtime.v1.RuntimeService/ListPodSandbox"
	methodListContainers = "/runtime.v1.RuntimeService/ListContainers"
)

// Version asks who the runtime is.
func (l *Lister) Version(ctx context.Context) (Version, error) {
	request := protowire.AppendTag(nil, 1, protowire.BytesType)
	request = protowire.AppendString(request, "v1")
	reply, err := l.ask(ctx, callLimit, methodVersion, request)
	if err != nil {
		return Version{}, fmt.Errorf("ask for version: %w", err)
	}
	return ReadVersion(reply)
}

// Systemd asks for the runtime's cgroup driver. Runtimes that do not tell it give ErrUnimplemented, or known false; then
// the sandboxes' cgroup parents tell.
func (l *Lister) Systemd(ctx context.Context) (systemd, known bool, err error) {
	reply, err := l.ask(ctx, callLimit, methodRuntimeConfig, nil)
	if err != nil {
		return false, false, fmt.Errorf("ask for cgroup driver: %w", err)
	}
	return ReadCgroupDriver(reply)
}

// Sandboxes lists all pod sandboxes, stopped ones included.
func (l *Lister) Sandboxes(ctx context.Context) ([]workload.ListedPod, error) {
	reply, err := l.ask(ctx, listLimit, methodListPodSandbox, nil)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	return ReadSandboxes(reply)
}

// Containers lists all containers, stopped ones included.
func (l *Lister) Containers(ctx context.Context) ([]workload.ListedContainer, error) {
	reply, err := l.ask(ctx, listLimit, methodListContainers, nil)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return ReadContainers(reply)
}

// Sandbox reads one sandbox with its cgroup, base and process, from the verbose status, and from the node what that lacks.
func (l *Lister) Sandbox(ctx context.Context, id string) (*workload.Pod, error) {
	reply, err := l.ask(ctx, callLimit, methodPodSandboxStatus, statusRequest(id))
	if err != nil {
		return nil, fmt.Errorf("ask for sandbox %s: %w", id, err)
	}
	return l.pod(reply)
}

// ContainerStatus reads one container's state, mark and resources, from a status that is not verbose. See
// ReadContainerStatus for the marks.
func (l *Lister) ContainerStatus(ctx context.Context, id string, marks ...*protocol.Applied) (*workload.Container, error) {
	request := protowire.AppendTag(nil, 1, protowire.BytesType)
	request = protowire.AppendString(request, id)
	reply, err := l.ask(ctx, callLimit, methodContainerStatus, request)
	if err != nil {
		return nil, fmt.Errorf("ask for container %s: %w", id, err)
	}
	return ReadContainerStatus(reply, marks...)
}

func (l *Lister) ask(ctx context.Context, limit time.Duration, method string, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return l.call(ctx, method, request)
}
