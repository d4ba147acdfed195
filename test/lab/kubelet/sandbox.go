// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import (
	"context"
	"errors"
)

// NewSandbox ends a pod's sandbox and its containers and gives the pod another one, as kubelet does when a sandbox has died: same UID,
// same cgroup, next attempt. It returns the id of the old sandbox, which kubelet removes some time later; the caller does.
// The ended containers are removed at once, which kubelet does later as well; new ones are made with StartContainer.
// Source: kuberuntime SyncPod (killPodWithSyncResult, createPodSandbox), podSandboxChanged.
func (k *Kubelet) NewSandbox(ctx context.Context, r *Running) (old string, err error) {
	d, err := podDemandOf(r.Pod)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, id := range r.Containers {
		errs = append(errs, k.options.CRI.StopContainer(ctx, id, 0), k.options.CRI.RemoveContainer(ctx, id))
	}
	if err := errors.Join(append(errs, k.options.CRI.StopPod(ctx, r.SandboxID))...); err != nil {
		return "", err
	}
	config := k.sandboxConfig(r.Pod, d, r.group, r.Config.GetMetadata().GetAttempt()+1)
	id, err := k.options.CRI.RunPod(ctx, config, r.Pod.RuntimeHandler)
	if err != nil {
		return "", err
	}
	old, r.SandboxID, r.Config, r.Containers = r.SandboxID, id, config, map[string]string{}
	return old, nil
}
