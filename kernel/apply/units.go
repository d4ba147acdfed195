// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// SyncUnits makes the plan's settings properties of their systemd units, after the reply to the runtime (D6). It is one
// call per cgroup; results stand in the plan's order, Skipped for knobs that are no file of a cgroup, or have no property.
func (a *Applier) SyncUnits(ctx context.Context, p plan.Plan, gen uint64) []Result {
	results := make([]Result, len(p))
	byCgroup := map[string][]int{}
	var order []string
	for i := range p {
		results[i] = Result{Setting: p[i], Outcome: Skipped}
		if p[i].Observe || !isCgroupKnob(p[i].Knob) || p[i].Target.Level == plan.LevelGroup || p[i].Target.Level == plan.LevelNode {
			continue
		}
		dir := p[i].Target.Cgroup
		if a.o.Units != nil && !a.o.Units.Has(dir, p[i].Knob) {
			continue
		}
		if byCgroup[dir] == nil {
			order = append(order, dir)
		}
		byCgroup[dir] = append(byCgroup[dir], i)
	}
	for _, dir := range order {
		a.syncUnit(ctx, dir, byCgroup[dir], p, results, gen)
	}
	return results
}

func (a *Applier) syncUnit(ctx context.Context, dir string, indexes []int, p plan.Plan, results []Result, gen uint64) {
	settings := make(plan.Plan, 0, len(indexes))
	for _, i := range indexes {
		settings = append(settings, p[i])
	}
	err, back := a.tellUnit(ctx, dir, settings, gen)
	s := a.open()
	defer s.close()
	b := &s.batch
	b.session = s
	b.lock(settings)
	defer b.unlock()
	for _, i := range indexes {
		results[i].Outcome = Written
		if err != nil {
			results[i].fail(fmt.Errorf("set %s of %s in its unit: %w", p[i].Knob, p[i].Target, err))
			continue
		}
		results[i].Err = back
		rec := s.record(b.find(p[i].Target), p[i], journal.ViaSystemd, gen)
		if jerr := a.o.Journal.Append(rec); jerr != nil {
			results[i].Err = errors.Join(results[i].Err, fmt.Errorf("record it: %w", jerr))
		}
	}
}
