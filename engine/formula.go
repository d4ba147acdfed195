// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

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
func (g *Engine) learnFormula(_ context.Context, e entry) {
	v := g.views.Load()
	if g.o.Config.WeightFormula != config.WeightAuto || v.Kernel.Cgroup != node.CgroupV2 || g.learned.Load() || g.o.CgroupRoot == "" {
		return
	}
	shares := e.c.Base.Shares
	if s := e.plan.Get(plan.CPUShares); s != nil && !s.Observe {
		shares = unit.Some(s.Value.Int())
	}
	raw, err := os.ReadFile(g.o.CgroupRoot + e.c.Cgroup + "/cpu.weight")
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
	g.learned.Store(true)
	if f == v.Runtime.Weight {
		return
	}
	g.log.Info("learned how the runtime turns shares into a weight", "formula", f, "shares", shares.V, "weight", weight)
	if g.o.OnFormula != nil {
		g.o.OnFormula(f)
	}
	g.units.again()
	g.views.SetWeight(f)
	g.stats.tell() // koordctl reads weights by the formula
}
