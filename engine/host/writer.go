// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"os"
	"sync"
	"sync/atomic"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/systemd"
	"github.com/koord-rt/koord-rt/kernel/tc"
	"github.com/koord-rt/koord-rt/kernel/wire"
	"github.com/koord-rt/koord-rt/model/drift"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

var _ engine.Starter = (*writer)(nil)

// writer is the process's Applier. It is made anew when the runtime's weight formula turns out to be another: the
// formula is part of what a cgroup file means.
type writer struct {
	roots   root.Roots
	version node.CgroupVersion
	journal journal.Journal
	systemd bool
	keep    bool // bursts, see apply.Options
	bus     *systemd.Units
	cookies *proc.CoreSched
	now     atomic.Pointer[apply.Applier]

	podWeight unit.WeightFormula
	mu        sync.Mutex // held while an Applier is made, and guards what follows
	weight    unit.WeightFormula
}

func newWriter(roots root.Roots, k *node.Kernel, j journal.Journal, keep bool, weight, podWeight unit.WeightFormula) (*writer, error) {
	w := &writer{
		roots: roots, version: k.Cgroup, journal: j, systemd: k.Systemd, keep: keep, bus: systemd.New(k.Cgroup == node.CgroupV1),
		cookies: proc.NewCoreSched(proc.FS(roots.Proc)), podWeight: podWeight, weight: weight,
	}
	return w, w.reopen()
}

// found compares what a record found by what the kernel can hold, for the ledger.
func (w *writer) found(r *journal.Record, want string) bool { return w.now.Load().Found(r, want) }

// reopen makes the Applier for what the machine has now.
func (w *writer) reopen() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open()
}

// setWeight makes the Applier for another formula, which holds from now on even if that fails: the next one that is made has it.
func (w *writer) setWeight(f unit.WeightFormula) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.weight = f
	return w.open()
}

// open makes the Applier. The lock is held.
func (w *writer) open() error {
	fs, err := cgroup.Open(w.roots, w.version, cgroup.Options{Weight: w.weight, PodWeight: w.podWeight, Page: unit.Bytes(os.Getpagesize())})
	if err != nil {
		return err
	}
	procFS := proc.FS(w.roots.Proc)
	o := apply.Options{
		FS: fs, Roots: w.roots, Journal: w.journal,
		Tasks: wire.Tasks{FS: procFS}, Cookies: cookies{w.cookies}, Links: tc.Shaper{}, KeepBursts: w.keep,
	}
	if rdt := resctrl.FS(w.roots.Resctrl); rdt.Mounted() {
		o.Groups = wire.Groups{FS: rdt, Proc: procFS}
	}
	if w.systemd {
		o.Units = wire.Units{Bus: w.bus, Container: w.weight, Pod: w.podWeight, V1: w.version == node.CgroupV1}
	}
	a, err := apply.New(o)
	if err != nil {
		return err
	}
	if old := w.now.Load(); old != nil {
		a.Inherit(old)
	}
	w.now.Store(a)
	return nil
}

// Recall is the Applier's.
func (w *writer) Recall(records []journal.Record) []apply.Standing {
	return w.now.Load().Recall(records)
}

func (w *writer) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	return w.now.Load().Apply(ctx, p, gen)
}

func (w *writer) Restore(ctx context.Context, records []journal.Record) []apply.RestoreStep {
	return w.now.Load().Restore(ctx, records, false)
}

func (w *writer) Verify(p plan.Plan) []apply.Mismatch { return w.now.Load().Verify(p) }

func (w *writer) Start(
	ctx context.Context, t plan.Target, todo, all plan.Plan, gen uint64,
) ([]apply.Result, []apply.Mismatch, func()) {
	return w.now.Load().Start(ctx, t, todo, all, gen)
}

func (w *writer) Ready(t plan.Target, all plan.Plan) bool { return w.now.Load().Ready(t, all) }

func (w *writer) Unready(t plan.Target) { w.now.Load().Unready(t) }

func (w *writer) SyncUnits(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	return w.now.Load().SyncUnits(ctx, p, gen)
}

// Sources is the Applier's.
func (w *writer) Sources(ctx context.Context, strays []apply.Stray) []drift.Source {
	return w.now.Load().Sources(ctx, strays)
}

func (w *writer) Forget(targets ...plan.Target) error { return w.now.Load().Forget(targets...) }

func (w *writer) Last(id plan.ID) (plan.Value, bool) { return w.now.Load().Last(id) }

// close waits for writes that the kernel has not finished and ends the bus connection.
func (w *writer) close(ctx context.Context) error {
	var err error
	if a := w.now.Load(); a != nil { // nil when it could not be made
		err = a.Wait(ctx)
		a.Close()
	}
	w.bus.Close()
	return err
}
