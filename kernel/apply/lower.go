// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// burstText is room for a burst's file, which holds a number of at most 20 digits on both cgroup versions (Documentation/scheduler/sched-bwc.rst,
// Documentation/admin-guide/cgroup-v2.rst), and a newline.
const burstText = 32

// lower is Apply of one burst that falls and whose file is kept open: a kubelet waits for it. It takes no session and no batch, whose lists,
// lookups and order take some 30 µs where they are in no cache (BenchmarkReal of the NRI plugin). ok is false where any of this is otherwise, and
// then nothing has been done.
func (a *Applier) lower(ctx context.Context, p plan.Plan, gen uint64) (_ []Result, ok bool) {
	if len(p) != 1 || p[0].Knob != plan.CPUBurst || p[0].Observe || a.keptNow.Load() == 0 {
		return nil, false
	}
	s := &p[0]
	a.mu.Lock()
	t := a.targets[keyOf(s.Target)]
	a.mu.Unlock()
	if t == nil || !t.mu.TryLock() {
		return nil, false // it may have none, or another file by the time that it is free
	}
	defer t.mu.Unlock()
	if t.dead || t.kept.fd1 == 0 {
		return nil, false
	}
	defer func() {
		if a.keptMost.Load() == 0 {
			a.unkeep(t).close() // closed meanwhile, which did not wait
		}
	}()
	last, known := t.lastOwn(*s)
	if !known || s.Value.IsText() || s.Value.Int() < 0 || s.Value.Int() >= last.Int() {
		return nil, false
	}
	var text [burstText]byte
	n, err := unix.Pread(t.kept.fd1-1, text[:], 0)
	was := last.String()
	if err != nil || strings.TrimSuffix(string(text[:n]), "\n") != was {
		return nil, false // somebody else has been at it, or it is gone
	}
	c := cgroup.Change{
		Current: last, Direction: cgroup.Shrink,
		Writes: []cgroup.Write{{File: t.kept.file, Data: s.Value.String()}}, Original: []string{was},
	}
	results := []Result{{Setting: *s, Before: last, Known: true}}
	r := &results[0]
	t.inode = t.kept.inode
	rec := a.recordAt(*s, journal.ViaDirect, gen, t.kept.inode)
	fillFiles(&rec, &c)
	if err := a.o.Journal.Append(rec); err != nil {
		r.fail(notRecorded(*s, err))
		return results, true
	}
	begun := a.o.Now()
	err = root.WriteOpen(t.kept.fd1-1, t.kept.file, c.Writes[0].Data)
	r.Took = a.o.Now().Sub(begun)
	if err != nil {
		a.bare().failedWrite(ctx, p, t, *s, c, rec, r, err)
		return results, true
	}
	r.Outcome = Written
	a.keepOwn(t, *s, last, false)
	t.remember(*s, journal.ViaDirect, "")
	return results, true
}
