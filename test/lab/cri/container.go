// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Info is what the verbose part of a status holds in containerd.
type Info struct {
	Pid         int             `json:"pid"`         // init process in the node's pid namespace, 0 if none
	RuntimeSpec json.RawMessage `json:"runtimeSpec"` // OCI runtime spec as stored by the runtime
}

// parseInfo reads the "info" key, a JSON object; a runtime without it gives zero.
func parseInfo(m map[string]string) (Info, error) {
	var info Info
	text, ok := m["info"]
	if !ok {
		return info, nil
	}
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return Info{}, fmt.Errorf("parse verbose status: %w", err)
	}
	return info, nil
}

// CreateContainer creates a container in a sandbox; pod must be the sandbox's own config.
func (c *Client) CreateContainer(ctx context.Context, podID string, config *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig) (string, error) {
	r, err := c.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: podID, Config: config, SandboxConfig: pod,
	})
	if err != nil {
		return "", fmt.Errorf("create container %s: %w", config.GetMetadata().GetName(), err)
	}
	return r.ContainerId, nil
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	if _, err := c.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("start container %s: %w", id, err)
	}
	return nil
}

// StopContainer stops a container; after grace (whole seconds, 0 = at once) it is killed.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := c.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{
		ContainerId: id, Timeout: int64(grace / time.Second),
	})
	if err != nil {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// RemoveContainer removes a stopped container.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	if _, err := c.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	return nil
}

// Containers lists all containers.
func (c *Client) Containers(ctx context.Context) ([]*runtimeapi.Container, error) {
	r, err := c.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return r.Containers, nil
}

// ContainerStatus returns a container's status with its verbose part.
func (c *Client) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, Info, error) {
	r, err := c.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, Info{}, fmt.Errorf("read status of container %s: %w", id, err)
	}
	info, err := parseInfo(r.Info)
	return r.Status, info, err
}

// UpdateContainer changes a container's resources.
func (c *Client) UpdateContainer(ctx context.Context, id string, res *runtimeapi.LinuxContainerResources) error {
	_, err := c.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: res,
	})
	if err != nil {
		return fmt.Errorf("update resources of container %s: %w", id, err)
	}
	return nil
}

// ExecResult is the end of a command in a container.
type ExecResult struct {
	Stdout, Stderr string
	Code           int
}

// ExecSync runs a command in a container and waits for it, two minutes at most.
func (c *Client) ExecSync(ctx context.Context, id string, command ...string) (ExecResult, error) {
	r, err := c.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: 120})
	if err != nil {
		return ExecResult{}, fmt.Errorf("exec in container %s: %w", id, err)
	}
	return ExecResult{Stdout: string(r.Stdout), Stderr: string(r.Stderr), Code: int(r.ExitCode)}, nil
}
