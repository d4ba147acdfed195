// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Synchronize takes in the runtime's list and answers without updates: the runtime holds its node-wide lock meanwhile,
// and each update in the reply would cost it a runc call. Repairs follow as direct writes.
func (p *Plugin) Synchronize(_ context.Context, sandboxes []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	return nil, p.quick(metrics.EventSynchronize, "synchronize", func(context.Context) error {
		byID := make(map[string]*api.PodSandbox, len(sandboxes))
		pods := make([]*workload.Pod, 0, len(sandboxes))
		for _, sb := range sandboxes {
			byID[sb.GetId()] = sb
			pods = append(pods, nri.Pod(sb))
		}
		list := make([]engine.Listed, 0, len(containers))
		for _, ctr := range containers {
			id := ctr.GetPodSandboxId()
			list = append(list, engine.Listed{Sandbox: id, Arrival: arrivalOf(byID[id], ctr)})
		}
		p.engine.Synchronize(pods, list)
		return nil
	})
}
