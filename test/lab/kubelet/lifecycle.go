// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPod makes the pod's cgroup and sandbox, in kubelet's order: QoS cgroups first.
// Containers follow with StartContainer. After an error nothing of the pod is left.
func (k *Kubelet) RunPod(ctx context.Context, p Pod) (*Running, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	d, err := podDemandOf(p)
	if err != nil {
		return nil, err
	}
	r := &Running{Pod: p, QoS: d.qos(), Containers: map[string]string{}}
	r.group = k.podGroup(p, r.QoS)
	if err := k.createPodGroup(r, podValues(d)); err != nil {
		return nil, err
	}
	r.Config = k.sandboxConfig(p, d, r.group, 0)
	if err := os.MkdirAll(r.Config.LogDirectory, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("create log folder: %w", err), k.groups.remove(ctx, r.group))
	}
	if r.SandboxID, err = k.options.CRI.RunPod(ctx, r.Config, p.RuntimeHandler); err != nil {
		return nil, errors.Join(err, k.groups.remove(ctx, r.group))
	}
	r.Addresses, err = k.addresses(ctx, r)
	k.mu.Lock()
	k.pods = append(k.pods, r)
	k.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, k.StopPod(ctx, r))
	}
	return r, nil
}

func (k *Kubelet) createPodGroup(r *Running, v values) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.updateQoS(r.Pod); err != nil {
		return err
	}
	return k.groups.create(r.group, v)
}

// CreateContainer creates a container without starting it and returns its id.
func (k *Kubelet) CreateContainer(ctx context.Context, r *Running, name string) (string, error) {
	i := r.index(name)
	if i < 0 {
		return "", fmt.Errorf("create container: pod %s has no container %q", r.Pod.Name, name)
	}
	c := r.Pod.Containers[i]
	d, err := demandOf(c.Resources)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(r.Config.LogDirectory, name), 0o755); err != nil {
		return "", fmt.Errorf("create log folder: %w", err)
	}
	config := k.containerConfig(r.Pod, c, r.QoS, d, 0)
	id, err := k.options.CRI.CreateContainer(ctx, r.SandboxID, config, r.Config)
	if err != nil {
		return "", fmt.Errorf("pod %s: %w", r.Pod.Name, err)
	}
	r.Containers[name] = id
	return id, nil
}

// StartContainer starts a container, creating it if CreateContainer was not called.
func (k *Kubelet) StartContainer(ctx context.Context, r *Running, name string) error {
	id := r.Containers[name]
	if id == "" {
		var err error
		if id, err = k.CreateContainer(ctx, r, name); err != nil {
			return err
		}
	}
	return k.options.CRI.StartContainer(ctx, id)
}

// StartContainers is StartContainer of every container in order; of an init container it waits for the end.
func (k *Kubelet) StartContainers(ctx context.Context, r *Running) error {
	for _, c := range r.Pod.Containers {
		if err := k.StartContainer(ctx, r, c.Name); err != nil {
			return err
		}
		if !c.Init {
			continue
		}
		if err := k.ended(ctx, r, c.Name); err != nil {
			return err
		}
	}
	return nil
}

// ended waits until an init container has done its work. The container stays for a while, as with kubelet.
func (k *Kubelet) ended(ctx context.Context, r *Running, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		status, _, err := k.options.CRI.ContainerStatus(ctx, r.Containers[name])
		switch {
		case err != nil:
			return fmt.Errorf("pod %s: wait for init container %s: %w", r.Pod.Name, name, err)
		case status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED:
			time.Sleep(20 * time.Millisecond)
		case status.GetExitCode() != 0:
			return fmt.Errorf("pod %s: init container %s ended with %d", r.Pod.Name, name, status.GetExitCode())
		default:
			return nil
		}
	}
}

// StartPod is RunPod and StartContainers. When a container does not start, the pod is stopped.
func (k *Kubelet) StartPod(ctx context.Context, p Pod) (*Running, error) {
	r, err := k.RunPod(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := k.StartContainers(ctx, r); err != nil {
		return nil, errors.Join(err, k.StopPod(ctx, r))
	}
	return r, nil
}

// StopPod kills the containers, removes the sandbox and the pod's cgroup, and sets
// the QoS cgroups anew. Every step is tried; a second call does nothing.
func (k *Kubelet) StopPod(ctx context.Context, r *Running) error {
	k.mu.Lock()
	i := slices.Index(k.pods, r)
	if i >= 0 {
		k.pods = slices.Delete(k.pods, i, i+1)
	}
	k.mu.Unlock()
	if i < 0 {
		return nil
	}
	var errs []error
	for _, c := range r.Pod.Containers {
		if id := r.Containers[c.Name]; id != "" {
			errs = append(errs, k.options.CRI.StopContainer(ctx, id, 0*time.Second))
		}
	}
	errs = append(errs, k.options.CRI.StopPod(ctx, r.SandboxID))
	// As the kubelet does, which removes a sandbox when it has no container left. containerd 2.4 would take its lock against
	// plugins twice, and wait for itself for ever where one connects in between (docs/user/troubleshoot.md).
	for _, c := range r.Pod.Containers {
		if id := r.Containers[c.Name]; id != "" {
			errs = append(errs, k.options.CRI.RemoveContainer(ctx, id))
		}
	}
	errs = append(errs,
		k.options.CRI.RemovePod(ctx, r.SandboxID),
		k.groups.remove(ctx, r.group),
		k.UpdateQoS())
	return errors.Join(errs...)
}

func (r *Running) index(name string) int {
	return slices.IndexFunc(r.Pod.Containers, func(c Container) bool { return c.Name == name })
}
