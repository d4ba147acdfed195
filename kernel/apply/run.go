// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Retries of EBUSY and EAGAIN: three, after 1, 2 and 4 ms. They are transient for a cpuset whose sibling is being
// updated and for memory that is being reclaimed.
const (
	retries    = 3
	retryAfter = time.Millisecond
)

// run performs one step against the state that the steps before it have left. What was read at the beginning still
// counts unless one of them bears on it.
func (b *batch) run(ctx context.Context, st step) {
	a, r, s := b.a, &b.results[st.index], b.p[st.index]
	if b.waitsFor(s) {
		b.flush(ctx)
	}
	if r.Err != nil {
		return // its widening step failed
	}
	t := find(b.held, s.Target)
	s, err := a.fit(ctx, b.p, t, s, st, r, b.gen)
	if err != nil {
		r.fail(a.explain(s, err))
		a.failed(t, r, b.gen)
		return
	}
	c := b.changes[st.index]
	if s.Value != b.p[st.index].Value || b.touched(s) {
		if c, err = a.change(b.p, s); err != nil {
			r.fail(a.explain(s, err))
			a.failed(t, r, b.gen)
			return
		}
	}
	if c.Same {
		if r.Outcome != Written {
			b.note(st.index, t, s, journal.ViaDirect)
		}
		return
	}
	b.stage(st.index, t, s, c)
}

// commit records a change and then writes it, at once.
func (a *Applier) commit(ctx context.Context, p plan.Plan, t *target, s plan.Setting, c cgroup.Change, r *Result, gen uint64) {
	rec := a.recordOf(t, s, c, gen)
	if err := a.o.Journal.Append(rec); err != nil {
		r.fail(notRecorded(s, err))
		return
	}
	a.write(ctx, p, t, s, c, rec, r)
}

func notRecorded(s plan.Setting, err error) error {
	return fmt.Errorf("%s of %s: %w: %w", s.Knob, s.Target, ErrLedger, err)
}

// recordOf is the record of a change that is about to be written.
func (a *Applier) recordOf(t *target, s plan.Setting, c cgroup.Change, gen uint64) journal.Record {
	rec := a.record(t, s, journal.ViaDirect, gen)
	a.fill(&rec, s, c)
	return rec
}

// fill states the files of a change: what stands there and what will.
func (a *Applier) fill(rec *journal.Record, s plan.Setting, c cgroup.Change) {
	for i, w := range c.Writes {
		rec.Files = append(rec.Files, w.File)
		rec.Written = append(rec.Written, w.Data)
		if i < len(c.Original) {
			rec.Original = append(rec.Original, c.Original[i])
		}
	}
	a.recordLost(rec, s)
}

// write writes a change that has been recorded.
func (a *Applier) write(ctx context.Context, p plan.Plan, t *target, s plan.Setting, c cgroup.Change, rec journal.Record, r *Result) {
	var err error
	pending := false
	if isCgroupKnob(s.Knob) {
		err, pending = a.writeFiles(ctx, s, c, rec)
	} else {
		err = a.writeOther(p, s, c)
	}
	switch {
	case err != nil:
		r.fail(a.explain(s, err))
		t.remember(s, journal.ViaDirect, r.Err.Error())
		r.Err = errors.Join(r.Err, a.recordError(rec, r.Err))
	case pending:
		r.Outcome = Pending
	default:
		r.Outcome = Written
		t.remember(s, journal.ViaDirect, "")
	}
}

// recordError takes the record of a write back that was refused.
func (a *Applier) recordError(rec journal.Record, cause error) error {
	rec.Time, rec.Original, rec.Written, rec.Err = a.o.Now(), nil, nil, cause.Error()
	if err := a.o.Journal.Append(rec); err != nil {
		return fmt.Errorf("record it: %w", err)
	}
	return nil
}

// recordLost adds the weight to a record of cpu.idle: the kernel forgets it when idle is set, and puts the default in its
// place when idle is cleared.
func (a *Applier) recordLost(rec *journal.Record, s plan.Setting) {
	if s.Knob != plan.CPUIdle {
		return
	}
	path, err := a.o.FS.Path(s.Target, plan.CPUShares)
	if err != nil {
		return
	}
	if raw, err := root.Read(path); err == nil {
		rec.Files = append(rec.Files, path)
		rec.Original = append(rec.Original, raw)
	}
}

// writeFiles writes the cgroup files of a change. A memory limit that falls below what is in use makes the kernel reclaim
// inside write(2), for seconds where reclaim is slow; it is written from a goroutine and waited for until ctx ends.
func (a *Applier) writeFiles(ctx context.Context, s plan.Setting, c cgroup.Change, rec journal.Record) (err error, pending bool) {
	if !a.reclaims(s, c) {
		return a.writeAll(ctx, s, c), false
	}
	done := make(chan error, 1)
	a.background(func() {
		done <- a.writeAll(context.WithoutCancel(ctx), s, c)
		if ctx.Err() == nil {
			return
		}
		select {
		case err := <-done: // nobody has waited
			if err != nil {
				_ = a.recordError(rec, err) // nobody is left to tell; the journal counts its own failures
			}
		default:
		}
	})
	select {
	case err := <-done:
		return err, false
	case <-ctx.Done():
	}
	select {
	case err := <-done: // both were ready
		return err, false
	default:
		return nil, true
	}
}

// reclaims reports whether the write would have to free memory first.
func (a *Applier) reclaims(s plan.Setting, c cgroup.Change) bool {
	if c.Direction != cgroup.Shrink || s.Knob != plan.MemoryLimit && s.Knob != plan.MemoryHigh {
		return false
	}
	path, err := a.o.FS.UsageFile(s.Target)
	if err != nil {
		return false
	}
	raw, err := root.Read(path)
	if err != nil {
		return false
	}
	used, err := a.o.FS.Parse(plan.ID{Target: s.Target, Knob: plan.MemoryMin}, []byte(raw))
	return err == nil && used.Int() > s.Value.Int()
}

func (a *Applier) writeAll(ctx context.Context, s plan.Setting, c cgroup.Change) error {
	nonblock := s.Knob == plan.MemoryLimit || s.Knob == plan.MemoryHigh
	for _, w := range c.Writes {
		if err := a.writeRetry(ctx, w, nonblock); err != nil {
			return err
		}
	}
	return nil
}

func (a *Applier) writeRetry(ctx context.Context, w cgroup.Write, nonblock bool) error {
	wait := retryAfter
	for try := 0; ; try++ {
		err := a.o.Writer.Write(w.File, w.Data, nonblock)
		if try == retries || !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		wait *= 2
	}
}

// explain turns an errno into what it means for this knob.
func (a *Applier) explain(s plan.Setting, err error) error {
	if errors.Is(err, ErrGone) || errors.Is(err, ErrUnsupported) {
		return err
	}
	wrap := func(cause error) error { return fmt.Errorf("%s of %s: %w: %w", s.Knob, s.Target, cause, err) }
	switch {
	case errors.Is(err, unix.ESRCH):
		return wrap(ErrGone)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		dir, derr := a.dirOf(s.Target, s.Knob)
		if derr == nil {
			_, derr = root.Inode(dir)
		}
		if derr != nil {
			return wrap(ErrGone)
		}
		if errors.Is(err, unix.ENOENT) {
			return wrap(ErrUnsupported)
		}
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%s of %s: %w (%s)", s.Knob, s.Target, err, cgroup.Failure(s.Knob))
	}
	return fmt.Errorf("%s of %s: %w", s.Knob, s.Target, err)
}
