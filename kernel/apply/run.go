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
	a, r, s := b.session, &b.results[st.index], b.p[st.index]
	if b.waitsFor(s) {
		b.flush(ctx)
	}
	if r.Err != nil {
		return // its widening step failed
	}
	t := b.find(s.Target)
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
func (a *session) commit(ctx context.Context, p plan.Plan, t *target, s plan.Setting, c cgroup.Change, r *Result, gen uint64) {
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
func (a *session) recordOf(t *target, s plan.Setting, c cgroup.Change, gen uint64) journal.Record {
	rec := a.record(t, s, journal.ViaDirect, gen)
	a.fill(&rec, t, s, c)
	return rec
}

// fill states the files of a change: what stands there and what will.
func (a *session) fill(rec *journal.Record, t *target, s plan.Setting, c cgroup.Change) {
	if rec.Theirs = a.theirs(t, s, c.Current); rec.Theirs {
		rec.Found = c.Current.String()
	}
	fillFiles(rec, &c)
	a.recordLost(rec, s)
}

// fillFiles states the files that are written, with what stands there and what will.
func fillFiles(rec *journal.Record, c *cgroup.Change) {
	n := len(c.Writes)
	texts := make([]string, 2*n)
	rec.Files, rec.Written = texts[:n:n], texts[n:]
	for i := range c.Writes {
		rec.Files[i], rec.Written[i] = c.Writes[i].File, c.Writes[i].Data
	}
	m := min(n, len(c.Original))
	rec.Original = c.Original[:m:m]
}

// write writes a change that has been recorded.
func (a *session) write(ctx context.Context, p plan.Plan, t *target, s plan.Setting, c cgroup.Change, rec journal.Record, r *Result) {
	var err error
	pending := false
	begun := a.o.Now()
	if isCgroupKnob(s.Knob) {
		err, pending = a.writeFiles(ctx, t, s, c, rec)
	} else {
		err = a.writeOther(p, s, c)
	}
	if !pending {
		r.Took = a.o.Now().Sub(begun)
	}
	switch {
	case err != nil:
		a.failedWrite(ctx, p, t, s, c, rec, r, err)
	case pending:
		r.Outcome = Pending
		a.keepOwn(t, s, c.Current, rec.Theirs)
	default:
		r.Outcome = Written
		a.keepOwn(t, s, c.Current, rec.Theirs)
		t.remember(s, journal.ViaDirect, "")
	}
}

// failedWrite tells what has become of a change that was recorded and that the kernel has refused.
func (a *session) failedWrite(ctx context.Context, p plan.Plan, t *target, s plan.Setting, c cgroup.Change, rec journal.Record, r *Result, err error) {
	r.fail(a.explain(s, err))
	t.remember(s, journal.ViaDirect, r.Err.Error())
	stands, rerr := a.refused(ctx, p, s, c, rec, err, r.Err)
	if r.Err = errors.Join(r.Err, rerr); stands {
		a.keepOwn(t, s, c.Current, rec.Theirs)
	}
}

// recordError takes the record of a write back that was refused.
func (a *Applier) recordError(rec journal.Record, cause error) error {
	return a.recorded(takingBack(&rec, a.o.Now(), cause))
}

// takingBack is the record that takes another back.
func takingBack(rec *journal.Record, now time.Time, cause error) journal.Record {
	out := *rec
	out.Time, out.Original, out.Written, out.Err = now, nil, nil, cause.Error()
	return out
}

// recorded appends records of what has failed.
func (a *Applier) recorded(records ...journal.Record) error {
	if err := a.o.Journal.Append(records...); err != nil {
		return fmt.Errorf("record it: %w", err)
	}
	return nil
}

// recordLost adds the weight to a record of cpu.idle: the kernel forgets it when idle is set, and puts the default in its
// place when idle is cleared.
func (a *session) recordLost(rec *journal.Record, s plan.Setting) {
	if s.Knob != plan.CPUIdle {
		return
	}
	path, err := a.fs.Path(s.Target, plan.CPUShares)
	if err != nil {
		return
	}
	b := a.held.Get()
	defer b.Put()
	if raw, err := b.Read(path); err == nil {
		rec.Files = append(rec.Files, path)
		rec.Original = append(rec.Original, string(raw))
	}
}

// writeFiles writes the cgroup files of a change; pending says that it goes on.
func (a *session) writeFiles(ctx context.Context, t *target, s plan.Setting, c cgroup.Change, rec journal.Record) (err error, pending bool) {
	if a.reclaims(s, c) {
		return a.writeSlowly(ctx, t, s, c, rec)
	}
	return a.writeAll(ctx, s, c), false
}

// writeSlowly writes a memory limit that falls below what is in use: the kernel reclaims inside write(2), for seconds where
// reclaim is slow. It is written from a goroutine and waited for until ctx ends.
func (a *session) writeSlowly(ctx context.Context, t *target, s plan.Setting, c cgroup.Change, rec journal.Record) (err error, pending bool) {
	done, late := make(chan error, 1), &lateWrite{knob: s.Knob, rec: rec}
	alone := a.bare() // the session may be over before the write is
	a.background(func() {
		done <- alone.writeAll(context.WithoutCancel(ctx), s, c)
		if ctx.Err() == nil {
			return
		}
		select {
		case err := <-done: // nobody has waited
			if err != nil {
				_, _ = alone.refused(context.WithoutCancel(ctx), nil, s, c, rec, err, err) // nobody is left to tell; the journal counts its own failures
			}
			alone.after(t, late)
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
		t.late = append(t.late, late)
		return nil, true
	}
}

// reclaims reports whether the write would have to free memory first.
func (a *session) reclaims(s plan.Setting, c cgroup.Change) bool {
	if c.Direction != cgroup.Shrink || !reclaimsIn(s.Knob) {
		return false
	}
	path, err := a.fs.UsageFile(s.Target)
	if err != nil {
		return false
	}
	raw, err := root.Read(path)
	if err != nil {
		return false
	}
	used, err := a.fs.Parse(plan.ID{Target: s.Target, Knob: plan.MemoryMin}, []byte(raw))
	return err == nil && used.Int() > s.Value.Int()
}

func (a *session) writeAll(ctx context.Context, s plan.Setting, c cgroup.Change) error {
	nonblock := reclaimsIn(s.Knob)
	for i, w := range c.Writes {
		if err := a.writeRetry(ctx, w, nonblock); err != nil {
			if i > 0 {
				err = &failedAt{i, err}
			}
			return err
		}
	}
	return nil
}

func (a *session) writeRetry(ctx context.Context, w cgroup.Write, nonblock bool) error {
	wait := retryAfter
	for try := 0; ; try++ {
		err := a.writeOnce(w, nonblock)
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

func (a *session) writeOnce(w cgroup.Write, nonblock bool) error {
	if a.direct && !nonblock {
		return a.held.Write(w.File, w.Data)
	}
	return a.o.Writer.Write(w.File, w.Data, nonblock)
}

// explain turns an errno into what it means for this knob.
func (a *Applier) explain(s plan.Setting, err error) error {
	if errors.Is(err, ErrGone) || errors.Is(err, ErrUnsupported) {
		return err
	}
	if link := explainLink(s, err); link != nil {
		return link
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
