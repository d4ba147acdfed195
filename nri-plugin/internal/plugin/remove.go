// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// RemoveContainer forgets a container. The runtime sends it also for a container whose creation failed.
func (p *Plugin) RemoveContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container) error {
	return p.inMemory(metrics.EventRemoveContainer, subject(sb, ctr), func() { p.engine.Remove(ctr.GetId()) })
}

// RemovePodSandbox forgets a pod and removes its resctrl group.
func (p *Plugin) RemovePodSandbox(_ context.Context, sb *api.PodSandbox) error {
	return p.inMemory(metrics.EventRemovePodSandbox, subject(sb, nil), func() { p.engine.RemovePod(sb.GetId()) })
}
