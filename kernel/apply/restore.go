// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Action of one restore step.
type Action string

// Actions.
const (
	// ActWrite: the original, or the widest equivalent, is written.
	ActWrite Action = "write"
	// ActKeep: nothing is written; Reason says why.
	ActKeep Action = "keep"
	// ActRecreate: only a new container is without the value.
	ActRecreate Action = "recreate"
)

// RestoreStep is what becomes of one knob that a ledger lists.
type RestoreStep struct {
	Target plan.Target
	Knob   plan.Knob
	Key    string
	Action Action
	// Files and From are what would be written over, To what is written.
	Files  []string
	From   string
	To     []string
	Reason string
	// Recorded is a value of ours that the runtime's own record of the container has as well, nil where it has none: its next update writes it
	// again, or fails, as a quota does that is below a burst.
	Recorded *Recorded
	Err      error
}

// Restore undoes what the ledger's records say we did (D7), in the reverse of the order that keeps parents and children
// valid. A value is only written over when the kernel still holds ours, in the same cgroup of the same boot. Records are
// in the order in which they were appended; those of several processes are merged by time before. With dryRun nothing is
// written or recorded.
func (a *Applier) Restore(ctx context.Context, records []journal.Record, dryRun bool) []RestoreStep {
	histories, originals := a.histories(records)
	if !dryRun {
		a.unwant(histories, originals)
	}
	out := make([]RestoreStep, len(histories))
	changes := make([]undo, len(histories))
	var order []step
	wrote := map[string]string{}
	for i := range histories {
		h := histories[i]
		out[i] = RestoreStep{Target: h.id.Target, Knob: h.id.Knob, Key: h.id.Key, Action: ActKeep}
		u, ok := a.plan(h, originals, &out[i])
		if !ok {
			continue
		}
		if a.inUnit(&h) {
			out[i].Reason += ", also as its unit's property"
		}
		u.wrote = wrote
		changes[i] = u
		order = a.appendSteps(order, i, u.setting, u.direction)
	}
	undone := make(plan.Plan, len(changes))
	for i := range changes {
		undone[i] = changes[i].setting
	}
	order = pruneUnions(order, undone)
	a.placePeriods(order, undone)
	slices.SortStableFunc(order, byOrder)
	if !dryRun {
		for _, st := range order {
			a.undo(ctx, changes[st.index], st, &out[st.index])
		}
		a.unitsFollow(ctx, histories, out)
	}
	return out
}

// Why nothing is written.
const (
	already = "original already there"
	notOurs = "no longer our value"
)

// undo is one knob's way back.
type undo struct {
	setting   plan.Setting // the value to return to, for ordering
	direction cgroup.Direction
	writes    []cgroup.Write
	rendered  bool // to be rendered again: another step may have changed the file's other half
	pids      []int
	history   history
	// current is what stood in a cgroup's file when this was decided; read is false where that does not matter.
	current plan.Value
	read    bool
	// wrote is what the steps of one restore have written, by file; nil where there is one step alone.
	wrote map[string]string
}

// plan decides what one knob returns to; ok is false when nothing is to be written.
func (a *Applier) plan(h history, originals map[string]string, out *RestoreStep) (undo, bool) {
	s := plan.Setting{Target: h.id.Target, Knob: h.id.Knob, Key: h.id.Key}
	u := undo{setting: s, history: h}
	if isSpecOnly(s.Knob) {
		out.Action, out.Reason = ActRecreate, "stands in the container's specification"
		return u, false
	}
	if a.lostBeside(&h) {
		out.Recorded = a.recordedOf(&h, plan.Value{}, out)
		return a.planBeside(u, originals, out)
	}
	if h.ours == nil && h.runtime == nil {
		out.Reason = "never written by us"
		return u, false
	}
	if !isCgroupKnob(s.Knob) {
		return a.planOther(u, out)
	}
	current, raw, ok := a.stillOurs(h, originals, out)
	out.Recorded = a.recordedOf(&h, current, out)
	if !ok {
		return u, false
	}
	out.From = raw
	u.current, u.read = current, true
	if h.runtime != nil && h.id.Target.Level == plan.LevelContainer {
		return a.planWidest(u, current, out)
	}
	return a.planOriginal(u, current, originals, out)
}

// stillOurs reads the file and compares it with what we wrote. The text is there where it is ours, the value where it could be read.
func (a *Applier) stillOurs(h history, originals map[string]string, out *RestoreStep) (plan.Value, string, bool) {
	current, raw, err := a.look(&h)
	if err != nil {
		out.Err, out.Reason = err, "cannot be read"
		return plan.Value{}, "", false
	}
	if !a.isOurs(&h, current) {
		out.From, out.Reason = raw, notOurs
		if original, ok := h.original(originals, h.file(a)); ok && original == out.From {
			out.Reason = already
		}
		return current, "", false
	}
	return current, raw, true
}

// look is what a cgroup's file says of a knob, and its text.
func (a *Applier) look(h *history) (plan.Value, string, error) {
	b := root.Get()
	defer b.Put()
	raw, err := a.o.FS.ReadRaw(b, h.id.Target, h.id.Knob)
	if err != nil {
		return plan.Value{}, "", a.explain(plan.Setting{Target: h.id.Target, Knob: h.id.Knob}, err)
	}
	now, err := a.o.FS.Parse(h.id, raw)
	return now, string(raw), err
}

// isOurs reports whether the present value is one that we, or the runtime for us, may have written.
func (a *Applier) isOurs(h *history, now plan.Value) bool {
	return a.holdsOurs(*h, now) || a.mayBeOurs(h, now)
}

// holdsOurs compares the present value with the last one that we wrote, and with the one the runtime wrote for us.
func (a *Applier) holdsOurs(h history, current plan.Value) bool {
	if h.ours != nil && a.wrote(&h, h.ours, current) {
		return true
	}
	if h.runtime == nil {
		return false
	}
	v, err := valueOf(h.id.Knob, h.runtime.Want)
	return err == nil && a.o.FS.Same(plan.Setting{Target: h.id.Target, Knob: h.id.Knob, Key: h.id.Key, Value: v}, current)
}

// mayBeOurs compares the present value with those of ours that may stand.
func (a *Applier) mayBeOurs(h *history, current plan.Value) bool {
	return slices.ContainsFunc(h.mayStand(), func(r *journal.Record) bool { return a.wrote(h, r, current) })
}

// planOriginal returns to the bytes of the oldest record.
func (a *Applier) planOriginal(u undo, current plan.Value, originals map[string]string, out *RestoreStep) (undo, bool) {
	main := u.history.file(a)
	original, ok := u.history.original(originals, main)
	if !ok {
		out.Reason = "no original was recorded"
		return u, false
	}
	v, err := a.o.FS.Parse(u.history.id, []byte(original))
	if err != nil {
		out.Err, out.Reason = err, "original cannot be read"
		return u, false
	}
	u.setting.Value = v
	u.direction = cgroup.Compare(u.setting, current)
	if u.setting.Knob == plan.IOWeight && u.setting.Key != "" && !cgroup.HasDevice(original, u.setting.Key) {
		u.writes = []cgroup.Write{{File: main, Data: u.setting.Key + " default"}}
		return finish(u, "original: no weight of its own", out)
	}
	if u.setting.Knob.Info().Keyed || u.setting.Knob == plan.CPUPeriod || u.setting.Knob == plan.CPUQuota {
		// One file, several values: only ours is written, the others may have changed since.
		return a.planRendered(u, "original", out)
	}
	if k := u.setting.Knob; original == "" && (k == plan.CPUSetCPUs || k == plan.CPUSetMems) && !a.o.FS.Nested(k) {
		if list, ok := a.inherited(u.history.id); ok {
			u.setting.Value = list
			return a.planRendered(u, occupied, out)
		}
	}
	own := cgroup.Write{File: main, Data: line(original)}
	others := a.companions(u.history, originals, main)
	if out.From == original && len(others) == 0 {
		out.Reason = already
		return u, false
	}
	// memory.memsw goes before a limit that grows and after one that shrinks, cpu.weight after cpu.idle was cleared.
	if u.direction == cgroup.Grow {
		u.writes = append(others, own)
	} else {
		u.writes = append([]cgroup.Write{own}, others...)
	}
	return finish(u, "original", out)
}

// companions are the files that our writes of the knob have changed beside its own: memory.memsw.limit_in_bytes, and
// cpu.weight, which the kernel forgets while cpu.idle is set.
func (a *Applier) companions(h history, originals map[string]string, main string) []cgroup.Write {
	var out []cgroup.Write
	dir := path.Dir(main) // a ledger is a file: it must not lead elsewhere
	for _, r := range []*journal.Record{h.first, h.ours} {
		if r == nil {
			continue
		}
		for _, file := range r.Files {
			data, ok := originals[file]
			w := cgroup.Write{File: file, Data: line(data)}
			if ok && file != main && path.Dir(file) == dir && !slices.Contains(out, w) && a.isLost(h, file) {
				out = append(out, w)
			}
		}
	}
	return out
}

// isLost reports whether a companion shows what our write made of it: a weight only while the cgroup is idle (v1 shows 3,
// v2 0, from Linux 6.12 on 1), or at the default that clearing idle has left.
func (a *Applier) isLost(h history, file string) bool {
	if h.id.Knob != plan.CPUIdle {
		return true
	}
	raw, err := root.Read(file)
	return err == nil && slices.Contains([]string{"0", "1", "3", "100", "1024"}, raw)
}

// line makes an empty original an empty line: write(2) of nothing does not reach the kernel.
func line(s string) string {
	if s == "" {
		return "\n"
	}
	return s
}

func (a *Applier) planRendered(u undo, reason string, out *RestoreStep) (undo, bool) {
	c, err := a.o.FS.Prepare(u.setting)
	if err != nil {
		out.Err, out.Reason = a.explain(u.setting, err), "cannot be rendered"
		return u, false
	}
	if c.Same {
		out.Reason = reason + " already there"
		return u, false
	}
	u.writes, u.direction, u.rendered = c.Writes, c.Direction, true
	return finish(u, reason, out)
}

// planWidest returns a container field that stands in the runtime's specification to what restricts least.
func (a *Applier) planWidest(u undo, current plan.Value, out *RestoreStep) (undo, bool) {
	v, reason, err := a.widest(u.history)
	switch {
	case errors.Is(err, errNotRecorded):
		out.Action, out.Reason = ActRecreate, err.Error()
		return u, false
	case err != nil:
		out.Reason, out.Err = "cannot be read", a.explain(u.setting, err)
		return u, false
	}
	u.setting.Value = v
	u.direction = cgroup.Compare(u.setting, current)
	return a.planRendered(u, reason, out)
}

func finish(u undo, reason string, out *RestoreStep) (undo, bool) {
	out.Action, out.Reason = ActWrite, reason
	for _, w := range u.writes {
		out.Files = append(out.Files, w.File)
		out.To = append(out.To, w.Data)
	}
	return u, true
}

// undo records and writes one step back.
func (a *Applier) undo(ctx context.Context, u undo, st step, out *RestoreStep) {
	if out.Err != nil || out.Action != ActWrite {
		return // its widening step has failed, or found another's value
	}
	t := a.take(keyOf(u.setting.Target))
	defer t.mu.Unlock()
	a.undoIn(ctx, t, u, st, out)
}

// overtaken is why nothing is written to a cgroup's file to which somebody else has written since its way back was decided: a kubelet, by a resize.
// What the steps before this one have made of it is ours, and so is what the runtime has from us.
func (a *Applier) overtaken(t *target, u *undo, out *RestoreStep) (reason string) {
	if !u.read {
		return ""
	}
	now, raw, err := a.look(&u.history)
	if err != nil || now == u.current || a.isOurs(&u.history, now) {
		return "" // where it cannot be read, the write tells what is wrong
	}
	if w, ok := u.wrote[u.history.file(a)]; ok && w == line(raw) {
		return "" // a weight that cpu.idle had taken along
	}
	if i := t.ownAt(u.setting); i >= 0 && a.hasWritten(&t.own[i], u.setting, now) {
		return ""
	}
	out.From = raw
	if a.same(u.setting, now) {
		return already
	}
	if out.Recorded != nil {
		out.Recorded.Back.Value = now // the next update would write over it otherwise
	}
	return notOurs
}

// undoIn is undo in a target that is locked.
func (a *Applier) undoIn(ctx context.Context, t *target, u undo, st step, out *RestoreStep) {
	s := a.bare()
	if reason := a.overtaken(t, &u, out); reason != "" {
		out.Action, out.Reason, out.Files, out.To = ActKeep, reason, nil, nil
		return
	}
	if st.union {
		var r Result
		now, err := a.o.FS.Read(u.setting.ID())
		if err == nil {
			wide := widened(u.setting, now)
			var c cgroup.Change
			if c, err = a.o.FS.Prepare(wide); err == nil && !c.Same {
				s.commit(ctx, nil, t, wide, c, &r, 0)
				err = r.Err
			}
		}
		out.Err = err
		return
	}
	if u.rendered {
		c, err := a.o.FS.Prepare(u.setting)
		if err != nil || c.Same {
			out.Err = err
			return
		}
		u.writes = c.Writes
		out.Files, out.To = nil, nil
		finish(u, out.Reason, out)
	}
	rec := s.record(t, u.setting, journal.ViaRestore, 0)
	rec.Files, rec.Original, rec.Written = out.Files, []string{out.From}, out.To
	rec.Reason = out.Reason
	if err := a.o.Journal.Append(rec); err != nil {
		out.Err = fmt.Errorf("%s of %s: %w: %w", out.Knob, out.Target, ErrLedger, err)
		return
	}
	if isCgroupKnob(u.setting.Knob) {
		out.Err = s.writeAll(ctx, u.setting, cgroup.Change{Writes: u.writes})
	} else {
		out.Err = a.undoOther(u)
	}
	t.forget(u.setting)
	if out.Err == nil {
		t.disown(u.setting)
		for _, w := range u.writes {
			if u.wrote != nil {
				u.wrote[w.File] = w.Data
			}
		}
		return
	}
	out.Err = a.explain(u.setting, out.Err)
	out.Err = errors.Join(out.Err, a.recordError(rec, out.Err))
}
