// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// StartContainer runs when the cgroup and the init process exist and nothing has been exec'd: what the spec could not
// carry is written, then everything is read back (D9).
func (p *Plugin) StartContainer(_ context.Context, sb *api.PodSandbox, ctr *api.Container) error {
	pod := sandboxOf(sb)
	err := p.engine.Proved(metrics.EventStartContainer, subject(sb, ctr), pod, ctr.GetId(), func(ctx context.Context) error {
		return p.engine.Start(ctx, pod, arrivalOf(sb, ctr), int(ctr.GetPid()), nri.Cgroup(sb, ctr))
	})
	if err != nil {
		p.engine.Stop(ctr.GetId()) // it is refused and never runs: what it claims is free
	}
	return err
}
