// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"fmt"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// besideKnob is the knob that systemd (since 253) writes anew with every property of a unit that is set: memory.oom.group, which no
// property of a running scope can say (OOMPolicy= is for its creator). It writes none, over the kubelet's 1.
const (
	besideKnob = plan.MemoryOOMGroup
	none       = "0"
)

// beside is what a target remembers of the file of besideKnob.
type beside struct {
	// told is what the journal has been told to stand there, lost what systemd has written over and nobody has put back.
	told, lost string
	// telling counts the calls to systemd that go on.
	telling int
}

// stood is what the file of besideKnob had before a property was set.
type stood struct {
	setting   plan.Setting
	file, raw string // file is empty where there is none
	// own is what we had written last, if we had.
	own    plan.Value
	owning bool
}

// tellUnit sets the properties of a unit and puts back what systemd writes beside them; back is an error of the latter. The target is not
// held while systemd works.
func (a *Applier) tellUnit(ctx context.Context, dir string, settings plan.Plan, gen uint64) (err, back error) {
	if a.o.Units == nil {
		return ErrUnsupported, nil
	}
	was, err := a.noteBeside(settings[0].Target, gen)
	if err != nil {
		return err, nil
	}
	err = a.o.Units.Set(ctx, dir, a.withPeriod(settings))
	return err, a.putBack(ctx, &was, err == nil)
}

// withPeriod adds the kernel's period to a quota that comes without: a unit is told its quota by the second, and one of 10 ms taken for one
// of 100 ms is a tenth. That of 100 ms need not be told.
func (a *Applier) withPeriod(settings plan.Plan) plan.Plan {
	quota := settings.Get(plan.CPUQuota)
	if quota == nil || quota.Value.Int() <= 0 || settings.Get(plan.CPUPeriod) != nil {
		return settings
	}
	period := *quota
	period.Knob = plan.CPUPeriod
	var err error
	if period.Value, err = a.o.FS.Read(period.ID()); err != nil || period.Value.Int() == int64(unit.CFSPeriod) {
		return settings // a cgroup that cannot be read has ended
	}
	return append(settings[:len(settings):len(settings)], period)
}

// noteBeside reads what systemd is about to write over, and records it: killed before it is put back, we would leave systemd's value, which
// a restore would not know of. Where it is our own, the ledger has what a restore returns to.
func (a *Applier) noteBeside(target plan.Target, gen uint64) (stood, error) {
	out := stood{setting: plan.Setting{Target: target, Knob: besideKnob}}
	if a.o.FS.Version() != node.CgroupV2 {
		return out, nil
	}
	path, err := a.o.FS.Path(target, besideKnob)
	if err != nil {
		return out, nil //nolint:nilerr // nothing to lose
	}
	t := a.take(keyOf(target))
	defer t.mu.Unlock()
	if out.raw, err = root.Read(path); err != nil {
		return out, nil //nolint:nilerr // it has ended, or the kernel is older than 4.19
	}
	if out.raw == none && t.beside.lost != "" {
		out.raw = t.beside.lost
	}
	out.own, out.owning = t.lastOwn(out.setting)
	if out.raw != none && out.raw != t.beside.told && !(out.owning && out.own.String() == out.raw) {
		rec := a.bare().record(t, out.setting, journal.ViaBeside, gen)
		rec.Files, rec.Original, rec.Written = []string{path}, []string{out.raw}, []string{none}
		rec.Want, rec.Owner = "", ""
		if err := a.o.Journal.Append(rec); err != nil {
			return out, notRecorded(out.setting, err)
		}
		t.beside.told = out.raw
	}
	out.file = path
	t.beside.telling++
	return out, nil
}

// putBack writes what stood where systemd has written, or what we have written meanwhile. Where nobody knows whether systemd has, the
// next call does.
func (a *Applier) putBack(ctx context.Context, was *stood, written bool) error {
	if was.file == "" {
		return nil
	}
	t := a.take(keyOf(was.setting.Target))
	defer t.mu.Unlock()
	t.beside.telling = max(t.beside.telling-1, 0) // it may have been forgotten meanwhile
	want := was.raw
	if own, owning := t.lastOwn(was.setting); own != was.own || owning != was.owning {
		want = own.String()
	}
	t.beside.lost = ""
	if want == none {
		return nil
	}
	if now, err := root.Read(was.file); err != nil || now != none {
		if err == nil && !written {
			t.beside.lost = want
		}
		return nil //nolint:nilerr // it has ended
	}
	if err := a.bare().writeRetry(ctx, cgroup.Write{File: was.file, Data: want}, false); err != nil {
		t.beside.lost = want
		return fmt.Errorf("put %s of %s back after systemd: %w", was.setting.Knob, was.setting.Target, err)
	}
	return nil
}

// recallBeside remembers what an earlier life has told the journal, and what it was killed before putting back.
func (a *Applier) recallBeside(h *history, originals map[string]string) {
	if h.beside == nil {
		return
	}
	file := h.file(a)
	t := a.take(keyOf(h.id.Target))
	defer t.mu.Unlock()
	t.beside.told = pick(h.beside.Files, h.beside.Original, file)
	if a.lostBeside(h) && h.runtime == nil {
		t.beside.lost = h.besideOriginal(originals, file)
	}
}

// lostBeside reports whether systemd's value stands where ours, or none of ours, should.
func (a *Applier) lostBeside(h *history) bool {
	if h.beside == nil {
		return false
	}
	file := h.file(a)
	now, err := root.Read(file)
	if err != nil || now != writtenTo(h.beside, file) {
		return false
	}
	v, err := a.textOf(h, now)
	return err == nil && (h.besideLast || !a.holdsOurs(*h, v) && !a.mayBeOurs(h, v))
}

// besideOriginal is what stood before systemd wrote, or before the older writes of ours that it wrote over.
func (h *history) besideOriginal(originals map[string]string, file string) string {
	if o, ok := h.original(originals, file); ok && !h.besideLast {
		return o
	}
	return pick(h.beside.Files, h.beside.Original, file)
}

// planBeside returns to what systemd has written over. Of a container whose specification has our value that is what the kubelet asked for.
func (a *Applier) planBeside(u undo, originals map[string]string, out *RestoreStep) (undo, bool) {
	file := u.history.file(a)
	out.From = writtenTo(u.history.beside, file)
	v, err := a.textOf(&u.history, out.From)
	if err == nil && u.history.runtime != nil && u.history.id.Target.Level == plan.LevelContainer {
		return a.planWidest(u, v, out)
	}
	original := u.history.besideOriginal(originals, file)
	if err == nil {
		u.setting.Value, err = a.textOf(&u.history, original)
	}
	if err != nil {
		out.Err, out.Reason = err, "original cannot be read"
		return u, false
	}
	if original == out.From {
		out.Reason = already
		return u, false
	}
	u.direction = cgroup.Compare(u.setting, v)
	u.writes = []cgroup.Write{{File: file, Data: original}}
	return finish(u, "original: systemd wrote over it with a property of ours", out)
}
