// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"os"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/kernel/probe"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// manyToLearn is how many listed containers are looked at: the first tells, unless it has a weight that both formulas give.
const manyToLearn = 16

// learnFormulaFrom is learnFormula for what runs already, before anything of it is repaired by the wrong one.
func (g *Engine) learnFormulaFrom(entries []entry) {
	for i := range entries[:min(len(entries), manyToLearn)] {
		g.learnFormula(&entries[i])
	}
}

// learnFormula finds out how this node's runtime turns shares into a weight, from the first container that tells, and before
// its first value is written or proved: what stands there is still the runtime's. The runtime's version does not tell:
// distributions carry either formula in any runc.
func (g *Engine) learnFormula(e *entry) {
	if g.learned.Load() || g.o.Config.WeightFormula != config.WeightAuto || g.o.CgroupRoot == "" {
		return
	}
	v := g.views.Load()
	if v.Kernel.Cgroup != node.CgroupV2 {
		return
	}
	shares := e.c.Base.Shares
	if s := e.plan.Get(plan.CPUShares); s != nil && !s.Observe && e.inSpec {
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
	if !g.learned.CompareAndSwap(false, true) || f == v.Runtime.Weight {
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
