// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/plan"
)

// unitWorkers bounds how many units are told at a time: each is waited for.
const unitWorkers = 8

// inUnit reports whether systemd keeps the knob's value as a property of a unit.
func (a *Applier) inUnit(h *history) bool {
	return a.o.Units != nil && (h.ours != nil || h.runtime != nil) &&
		isCgroupKnob(h.id.Knob) && a.o.Units.Has(h.id.Target.Cgroup, h.id.Knob)
}

// unitsFollow makes what stands after a restore the properties of the units: a daemon-reload would write ours again, also
// where somebody else has written over the file since. Our values became properties by SyncUnits, and by the runtime out of
// a container's specification.
func (a *Applier) unitsFollow(ctx context.Context, histories []history, out []RestoreStep) {
	of := map[string][]int{}
	for i := range histories {
		if a.inUnit(&histories[i]) {
			dir := histories[i].id.Target.Cgroup
			of[dir] = append(of[dir], i)
		}
	}
	if len(of) == 0 {
		return
	}
	stands := map[string]string{} // file to content
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		free = make(chan struct{}, unitWorkers)
	)
	for _, dir := range slices.Sorted(maps.Keys(of)) {
		settings := a.standingIn(histories, of[dir], stands)
		if len(settings) == 0 {
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			err, back := a.tellUnit(ctx, dir, settings, 0)
			mu.Lock()
			defer mu.Unlock()
			for _, i := range of[dir] {
				if err != nil {
					back = errors.Join(back, fmt.Errorf("a daemon-reload brings ours back: set %s of %s in its unit: %w", out[i].Knob, out[i].Target, err))
				}
				out[i].Err, back = errors.Join(out[i].Err, back), nil
			}
		})
	}
	wg.Wait()
	a.keepFiles(ctx, stands)
}

// standingIn reads what the files of one unit hold now. Quota and period are one property to the reader, so they come together.
// So are cpu.idle and the weight: an idle cgroup tells the first, any other the second.
func (a *Applier) standingIn(histories []history, indexes []int, stands map[string]string) (out plan.Plan) {
	var knobs plan.Knobs
	t := histories[indexes[0]].id.Target
	for _, i := range indexes {
		knobs |= plan.KnobSet(histories[i].id.Knob)
	}
	if both := plan.KnobSet(plan.CPUQuota, plan.CPUPeriod); knobs&both != 0 {
		knobs |= both
	}
	if both := plan.KnobSet(plan.CPUIdle, plan.CPUShares); knobs&both != 0 && a.o.Units.Has(t.Cgroup, plan.CPUIdle) {
		knobs &^= both
		if idle, err := a.o.FS.Read(plan.ID{Target: t, Knob: plan.CPUIdle}); err == nil && idle.Int() > 0 {
			knobs |= plan.KnobSet(plan.CPUIdle)
		} else {
			knobs |= plan.KnobSet(plan.CPUShares)
		}
	}
	b := root.Get()
	defer b.Put()
	for k := plan.KnobNone + 1; k < plan.NumKnobs; k++ {
		if !knobs.Has(k) {
			continue
		}
		id := plan.ID{Target: t, Knob: k}
		path, err := a.o.FS.Path(t, k)
		if err != nil {
			continue
		}
		raw, err := a.o.FS.ReadRaw(b, t, k)
		if err != nil {
			continue // the cgroup has ended
		}
		if v, err := a.o.FS.Parse(id, raw); err == nil {
			stands[path] = string(raw)
			out = append(out, plan.Setting{Target: t, Knob: k, Value: v})
		}
	}
	return out
}

// keepFiles puts back what systemd has made of files when it wrote the units' attributes again: it rounds quotas.
func (a *Applier) keepFiles(ctx context.Context, stands map[string]string) {
	s := a.bare()
	for _, path := range slices.Sorted(maps.Keys(stands)) {
		if now, err := root.Read(path); err == nil && now != stands[path] {
			// The value is the restore's, which has been recorded. One that is refused stays as systemd has it.
			_ = s.writeRetry(ctx, cgroup.Write{File: path, Data: line(stands[path])}, true)
		}
	}
}
