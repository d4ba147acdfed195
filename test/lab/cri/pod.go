// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPod creates and starts a sandbox. handler "" is the runtime's default.
func (c *Client) RunPod(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	r, err := c.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return "", fmt.Errorf("run pod %s: %w", config.GetMetadata().GetName(), err)
	}
	return r.PodSandboxId, nil
}

// StopPod kills a sandbox and its containers.
func (c *Client) StopPod(ctx context.Context, id string) error {
	if _, err := c.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("stop pod %s: %w", id, err)
	}
	return nil
}

// RemovePod removes a sandbox and its containers.
func (c *Client) RemovePod(ctx context.Context, id string) error {
	if _, err := c.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("remove pod %s: %w", id, err)
	}
	return nil
}

// Pods lists all sandboxes.
func (c *Client) Pods(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	r, err := c.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return r.Items, nil
}

// RemoveAllPods stops and removes every sandbox.
func (c *Client) RemoveAllPods(ctx context.Context) error {
	pods, err := c.Pods(ctx)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if err := c.StopPod(ctx, p.Id); err != nil {
			return err
		}
		if err := c.RemovePod(ctx, p.Id); err != nil {
			return err
		}
	}
	return nil
}

// PodStatus returns a sandbox's status with its verbose part.
func (c *Client) PodStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, Info, error) {
	r, err := c.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return nil, Info{}, fmt.Errorf("read status of pod %s: %w", id, err)
	}
	info, err := parseInfo(r.Info)
	return r.Status, info, err
}

// UpdatePodResources tells the runtime a sandbox's new sums. Unimplemented is
// returned as the runtime sent it: containerd 1.7 and 2.0 do not know the call.
func (c *Client) UpdatePodResources(ctx context.Context, id string, overhead, sum *runtimeapi.LinuxContainerResources) error {
	_, err := c.Runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: id, Overhead: overhead, Resources: sum,
	})
	if err != nil {
		return fmt.Errorf("update resources of pod %s: %w", id, err)
	}
	return nil
}
