// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"

	"github.com/koord-rt/koord-rt/model/plan"
)

// unitProperties makes direct values properties of their systemd units, right after the reply (D6): a daemon-reload
// writes a unit's own values over whatever stands in the cgroup. It talks D-Bus, so it is never called in a handler.
func (p *Plugin) unitProperties(ctx context.Context, pl plan.Plan) {
	v := p.views.Load()
	if !v.Kernel.Systemd || len(pl) == 0 {
		return
	}
	for _, r := range p.o.Kernel.SyncUnits(ctx, direct(pl), v.Generation) {
		if r.Err != nil {
			p.problem(r.Setting.Target.String(), "systemd property of "+r.Setting.Knob.String(), r.Err.Error())
		}
	}
}
