// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// RunPodSandbox takes the pod in. Most pods are not even parsed before the reply; one with a resctrl group of its own, or
// with a guarantee that must hold, is.
func (p *Plugin) RunPodSandbox(_ context.Context, sb *api.PodSandbox) error {
	if !p.engine.RunPodMustWait(sb.GetAnnotations()) {
		return p.inMemory(metrics.EventRunPodSandbox, subject(sb, nil), func() { p.engine.RunPodLater(sandboxOf(sb)) })
	}
	err := p.quick(metrics.EventRunPodSandbox, subject(sb, nil), func(ctx context.Context) error {
		return p.engine.RunPod(ctx, sandboxOf(sb))
	})
	if err != nil {
		p.engine.RemovePod(sb.GetId()) // the runtime tells no end of a sandbox that it has not run
	}
	return err
}
