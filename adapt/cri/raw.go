// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

const methodStopContainer = "/runtime.v1.RuntimeService/StopContainer"

// Status is a container's verbose status as it came, to be read by [Container] with the marks that are known then.
func (l *Lister) Status(ctx context.Context, id string) ([]byte, error) {
	reply, err := l.ask(ctx, callLimit, methodContainerStatus, statusRequest(id))
	if err != nil {
		return nil, fmt.Errorf("ask for container %s: %w", id, err)
	}
	return reply, nil
}

// Stop ends a container without a grace period.
func (l *Lister) Stop(ctx context.Context, id string) error { return l.StopWithin(ctx, id, 0) }

// StopWithin ends a container: it is asked to, and killed after the grace period, which is rounded up to seconds.
// StopContainerRequest: container_id = 1, timeout = 2, in seconds (absent is 0).
func (l *Lister) StopWithin(ctx context.Context, id string, grace time.Duration) error {
	request := protowire.AppendTag(nil, 1, protowire.BytesType)
	request = protowire.AppendString(request, id)
	if seconds := (max(grace, 0) + time.Second - 1) / time.Second; seconds > 0 {
		request = protowire.AppendTag(request, 2, protowire.VarintType)
		request = protowire.AppendVarint(request, uint64(seconds)) //nolint:gosec // positive
	}
	if _, err := l.ask(ctx, listLimit+max(grace, 0), methodStopContainer, request); err != nil {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// SandboxConfig reads what the kubelet has stated of a sandbox from its verbose status, whose labels = 7 and
// annotations = 8; resources and overhead stay empty.
func (l *Lister) SandboxConfig(ctx context.Context, id string) (SandboxConfig, error) {
	reply, err := l.ask(ctx, callLimit, methodPodSandboxStatus, statusRequest(id))
	if err != nil {
		return SandboxConfig{}, fmt.Errorf("ask for sandbox %s: %w", id, err)
	}
	c, err := ReadSandboxConfig(reply)
	if err == nil && c.CgroupParent == "" && l.node != nil {
		c.CgroupParent, err = l.node.Pod(c.UID)
	}
	return c, err
}

// ReadSandboxConfig reads a verbose PodSandboxStatusResponse, see [Lister.SandboxConfig].
func ReadSandboxConfig(raw []byte) (SandboxConfig, error) {
	s, verbose, err := answer(raw)
	if err != nil {
		return SandboxConfig{}, fmt.Errorf("read sandbox status: %w", err)
	}
	in, err := readInfo(verbose)
	if err != nil {
		return SandboxConfig{}, err
	}
	meta, err1 := s.sub(2)
	labels, err2 := s.texts(7)
	annotations, err3 := s.texts(8)
	_, err4 := in.fromSpec()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return SandboxConfig{}, fmt.Errorf("read sandbox status: %w", err)
	}
	return SandboxConfig{
		Name: meta.text(1), UID: meta.text(2), Namespace: meta.text(3), Labels: labels, Annotations: annotations,
		CgroupParent: in.Config.Linux.CgroupParent,
	}, nil
}
