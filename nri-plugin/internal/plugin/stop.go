// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// StopContainer releases the container's CPUs and its part of the pod's sums.
func (p *Plugin) StopContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, p.inMemory(metrics.EventStopContainer, subject(sb, ctr), func() { p.engine.Stop(ctr.GetId()) })
}

// StopPodSandbox ends a pod: its containers are stopped, its protections no longer count.
func (p *Plugin) StopPodSandbox(_ context.Context, sb *api.PodSandbox) error {
	return p.inMemory(metrics.EventStopPodSandbox, subject(sb, nil), func() { p.engine.StopPod(sb.GetId()) })
}
