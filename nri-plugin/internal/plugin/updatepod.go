// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// UpdatePodSandbox comes before the kubelet writes the pod's cgroup for a resize.
func (p *Plugin) UpdatePodSandbox(_ context.Context, sb *api.PodSandbox, overhead, r *api.LinuxResources) error {
	return p.quick(metrics.EventUpdatePodSandbox, subject(sb, nil), func(ctx context.Context) error {
		p.engine.UpdatePod(ctx, sandboxOf(sb), nri.PodResources(r, overhead))
		return nil
	})
}

// PostUpdatePodSandbox starts the checks of the pod's cgroup anew.
func (p *Plugin) PostUpdatePodSandbox(_ context.Context, sb *api.PodSandbox) error {
	return p.inMemory(metrics.EventPostUpdatePodSandbox, subject(sb, nil), func() { p.engine.UpdatedPod(sb.GetId()) })
}
