// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Beside is the knob that systemd (since 253) writes anew with every property of a unit that is set: memory.oom.group, which no
// property of a running scope can say (OOMPolicy= is for its creator). It writes 0, over the kubelet's 1.
const Beside = plan.MemoryOOMGroup

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
	err := a.tellUnit(ctx, dir, settings, gen)
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
		rec := s.record(b.find(p[i].Target), p[i], journal.ViaSystemd, gen)
		if jerr := a.o.Journal.Append(rec); jerr != nil {
			results[i].Err = errors.Join(results[i].Err, fmt.Errorf("record it: %w", jerr))
		}
	}
}

// tellUnit sets the properties, and puts back what systemd writes beside them. It does not hold the target while systemd works.
func (a *Applier) tellUnit(ctx context.Context, dir string, settings plan.Plan, gen uint64) error {
	if a.o.Units == nil {
		return ErrUnsupported
	}
	stands, err := a.beside(settings[0], gen)
	if err != nil {
		return err
	}
	return errors.Join(a.o.Units.Set(ctx, dir, settings), a.putBack(ctx, stands))
}

// besides is what stood in the file of Beside before properties were set; file is empty where there is nothing to lose.
type besides struct {
	setting   plan.Setting
	file, raw string
	// own is what we had written last, if we had.
	own    plan.Value
	owning bool
}

// beside reads what systemd is about to write over, and records that as a write of ours: killed before it is put back, we would leave
// systemd's value, which a restore would not know of. Where the value is ours already, the ledger has what a restore returns to.
func (a *Applier) beside(by plan.Setting, gen uint64) (besides, error) {
	if a.o.FS.Version() != node.CgroupV2 {
		return besides{}, nil
	}
	out := besides{setting: plan.Setting{
		Target: by.Target, Knob: Beside, Owner: by.Owner, Reason: "kept: systemd writes 0 with every property that is set",
	}}
	t := a.take(keyOf(by.Target))
	defer t.mu.Unlock()
	if !a.standsBeside(&out) {
		return besides{}, nil
	}
	out.own, out.owning = t.lastOwn(out.setting)
	if out.owning || t.beside == out.raw {
		return out, nil
	}
	rec := a.bare().record(t, out.setting, journal.ViaDirect, gen)
	rec.Files, rec.Original, rec.Written = []string{out.file}, []string{out.raw}, []string{"0"}
	if err := a.o.Journal.Append(rec); err != nil {
		return besides{}, notRecorded(out.setting, err)
	}
	t.beside = out.raw
	return out, nil
}

// standsBeside reads the file and reports whether it has something to lose.
func (a *Applier) standsBeside(out *besides) bool {
	s := &out.setting
	path, err := a.o.FS.Path(s.Target, s.Knob)
	if err != nil {
		return false
	}
	b := root.Get()
	defer b.Put()
	raw, err := a.o.FS.ReadRaw(b, s.Target, s.Knob)
	if err != nil {
		return false // it has ended, or the kernel is older than 4.19
	}
	if s.Value, err = a.o.FS.Parse(s.ID(), raw); err != nil || s.Value.Int() == 0 {
		return false
	}
	out.file, out.raw = path, string(raw)
	return true
}

// putBack writes what stood unless it still does, or we have written another value meanwhile.
func (a *Applier) putBack(ctx context.Context, stood besides) error {
	if stood.file == "" {
		return nil
	}
	t := a.take(keyOf(stood.setting.Target))
	defer t.mu.Unlock()
	if own, owning := t.lastOwn(stood.setting); own != stood.own || owning != stood.owning {
		return nil
	}
	if now, err := root.Read(stood.file); err != nil || now == stood.raw {
		return nil //nolint:nilerr // it has ended
	}
	if err := a.bare().writeRetry(ctx, cgroup.Write{File: stood.file, Data: stood.raw}, false); err != nil {
		return fmt.Errorf("put %s of %s back after systemd: %w", stood.setting.Knob, stood.setting.Target, err)
	}
	return nil
}
