// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/shape"
)

// failedAt is the error of a change of several files; done of them had been written before.
type failedAt struct {
	done  int
	cause error
}

// Error is the cause's.
func (e *failedAt) Error() string { return e.cause.Error() }

// Unwrap is the cause.
func (e *failedAt) Unwrap() error { return e.cause }

// refused records that a write has failed: its record is taken back, and what has gone in all the same has one of its own, with the
// error, so that a restore undoes it. Both are one append, that no kill comes between. stands: the knob has the value, if not everywhere.
func (a *session) refused(ctx context.Context, p plan.Plan, s plan.Setting, c cgroup.Change, rec journal.Record, failed, told error) (stands bool, err error) {
	back := takingBack(&rec, a.o.Now(), told)
	in := a.wentIn(ctx, p, s, c, failed)
	if len(in) == 0 {
		return false, a.recorded(back)
	}
	part := back
	part.Files, part.Original, part.Written = nil, nil, nil
	for _, i := range in {
		if i < len(rec.Original) {
			part.Files = append(part.Files, rec.Files[i])
			part.Original = append(part.Original, rec.Original[i])
			part.Written = append(part.Written, rec.Written[i])
		}
	}
	if isCgroupKnob(s.Knob) {
		own, err := a.fs.Path(s.Target, s.Knob)
		stands = err == nil && slices.Contains(part.Files, own)
	} else {
		stands = true
	}
	if !stands {
		part.Theirs, part.Found, part.Want = false, "", "" // nothing was written over that, and of the knob itself nothing
	}
	return stands, a.recorded(back, part)
}

// wentIn are the writes of a change, by their places, that stand although it has failed.
func (a *session) wentIn(ctx context.Context, p plan.Plan, s plan.Setting, c cgroup.Change, failed error) (in []int) {
	switch {
	case isCgroupKnob(s.Knob):
		return a.filesIn(ctx, s, c, failed)
	case isLinkKnob(s.Knob):
		if now, err := a.o.Links.Shape(s.Key); err == nil && (now == s.Value.String() || now == shape.Half) {
			in = append(in, 0)
		}
		return in
	case s.Knob == plan.RDTSchemata:
		if now, err := a.changeSchemata(s); err == nil && now.Same {
			in = append(in, 0)
		}
		return in
	}
	for i := range c.Writes {
		if now, err := a.taskValue(p, s, taskPID(c.Writes[i].File)); err == nil && now == s.Value {
			in = append(in, i)
		}
	}
	return in
}

// filesIn is wentIn for cgroup files. Where the knob's own file is not among those written, they are put back: a companion alone is of
// no use, and a restore, which asks the knob's own file, would leave it.
func (a *session) filesIn(ctx context.Context, s plan.Setting, c cgroup.Change, failed error) (in []int) {
	var at *failedAt
	if !errors.As(failed, &at) {
		return nil
	}
	own, err := a.fs.Path(s.Target, s.Knob)
	if err != nil {
		return nil
	}
	stands := false
	for i := range at.done {
		in = append(in, i)
		stands = stands || c.Writes[i].File == own
	}
	if stands {
		return in
	}
	ctx = context.WithoutCancel(ctx) // what was begun is brought to an end
	for len(in) > 0 {
		last := len(in) - 1
		if last >= len(c.Original) || a.writeRetry(ctx, cgroup.Write{File: c.Writes[last].File, Data: line(c.Original[last])}, reclaimsIn(s.Knob)) != nil {
			return in
		}
		in = in[:last]
	}
	return nil
}

// eachTask does something with each process: one that fails does not keep the others from it, and one that has ended needs nothing.
func eachTask(pids []int, do func(i, pid int) error) error {
	var first error
	others := 0
	for i, pid := range pids {
		switch err := do(i, pid); {
		case err == nil || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT):
		case first == nil:
			first = err
		default:
			others++
		}
	}
	if others > 0 {
		return fmt.Errorf("%w; and %d more processes", first, others)
	}
	return first
}
