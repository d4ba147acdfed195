// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/kernel/probe"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// learnFormula finds out how this node's runtime turns shares into a weight, from the first container that tells. The
// runtime's version does not: distributions carry either formula in any runc.
func (p *Plugin) learnFormula(_ context.Context, e entry) {
	v := p.views.Load()
	if p.o.Config.WeightFormula != config.WeightAuto || v.Kernel.Cgroup != node.CgroupV2 || p.learned.Load() || p.o.CgroupRoot == "" {
		return
	}
	shares := e.c.Base.Shares
	if s := e.plan.Get(plan.CPUShares); s != nil && !s.Observe {
		shares = unit.Some(s.Value.Int())
	}
	raw, err := os.ReadFile(p.o.CgroupRoot + e.c.Cgroup + "/cpu.weight")
	if err != nil || !shares.Set || shares.V <= 0 {
		return
	}
	weight, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil {
		return
	}
	f, ok := probe.DetectFormula(unit.Shares(shares.V), unit.Weight(weight))
	if !ok {
		return
	}
	p.learned.Store(true)
	if f == v.Runtime.Weight {
		return
	}
	p.log.Info("learned how the runtime turns shares into a weight", "formula", f, "shares", shares.V, "weight", weight)
	if p.o.OnFormula != nil {
		p.o.OnFormula(f)
	}
	p.units.again()
	p.views.SetWeight(f)
	p.stats.tell() // koordctl reads weights by the formula
}
