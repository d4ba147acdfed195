// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/model/journal"
)

// takeEvery is how often a run directory that cannot be used is tried again.
const takeEvery = 5 * time.Second

// toldFor is how long a record that could not be written is told: what it was for is tried again sooner, as long as it is wanted.
const toldFor = 30 * time.Second

// runDir is what a program needs of the run directory before it may write to the kernel: the lock, so that nobody writes beside it, and
// the ledger, so that what it writes can be undone (ADR 6). As a journal it refuses every record while either is missing, and what is
// not recorded is not written.
type runDir struct {
	dir, writer string
	ledger      *ledger.Ledger
	mu          sync.Mutex
	lock        *lock.Lock // nil while it is not held
	lost        bool       // it was, and cannot be taken again: that is the bar
	// barred is why nothing can be recorded, nil when both are there; alone: the lock is held.
	barred atomic.Pointer[error]
	alone  atomic.Bool
	// failed is the last record's failure, nil once one could be written.
	failed atomic.Pointer[failure]
}

type failure struct {
	err error
	at  time.Time
}

var _ journal.Journal = (*runDir)(nil)

// newRunDir is one that nothing is taken of yet. failed is called when the ledger cannot be made smaller.
func newRunDir(dir, writer string, failed func(error)) (*runDir, error) {
	l, err := ledger.New(dir, writer, ledger.Options{Failed: failed})
	if err != nil {
		return nil, err
	}
	return &runDir{dir: dir, writer: writer, ledger: l}, nil
}

// take takes what is missing; a *lock.HeldError says that another process has the lock. The bar that its failure sets stays until lift.
func (r *runDir) take() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.takeLock()
	if err == nil {
		err = r.ledger.Open()
	}
	if err != nil {
		if !isHeld(err) {
			err = fmt.Errorf("the run directory %s cannot be used: %w", r.dir, err)
		}
		r.barred.Store(&err)
	}
	return err
}

// retake takes the lock anew where its file is not there any more, and says whether it did, or holds it again at last. As long as it cannot, nothing is recorded.
func (r *runDir) retake() (again bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	had := r.lock
	if err = r.takeLock(); err != nil {
		if !isHeld(err) {
			err = fmt.Errorf("the run directory %s cannot be used: %w", r.dir, err)
		}
		r.barred.Store(&err)
		r.lost = true
		return false, err
	}
	again = r.lost || r.lock != had
	if r.lost { // another bar is not ours to lift
		r.lost = false
		r.lift()
	}
	return again, nil
}

// lift lets records be written.
func (r *runDir) lift() { r.barred.Store(nil) }

// takeLock keeps a lock that cannot be signed: nobody else gets it, but nobody sees either whose it is. One whose file is not there any
// more holds nobody off, and is taken anew.
func (r *runDir) takeLock() error {
	if r.lock != nil {
		err := r.lock.Sign()
		if !errors.Is(err, lock.ErrReplaced) {
			return err
		}
		r.alone.Store(false)
		_ = r.lock.Release() // of a file that nobody finds
		r.lock = nil
	}
	l, err := lock.Take(lock.Path(r.dir, r.writer))
	if err != nil {
		return err
	}
	r.lock = l
	r.alone.Store(true)
	return l.Sign()
}

// why is why nothing can be recorded, and nothing is written therefore; nil when it can.
func (r *runDir) why() error {
	if err := r.barred.Load(); err != nil {
		return *err
	}
	return nil
}

// Append implements journal.Journal.
func (r *runDir) Append(records ...journal.Record) error {
	if err := r.why(); err != nil {
		return err
	}
	err := r.ledger.Append(records...)
	if err == nil {
		r.failed.Store(nil)
		return nil
	}
	if errors.Is(err, ledger.ErrTooLong) { // that record's fault
		return err
	}
	r.failed.Store(&failure{err: fmt.Errorf("the run directory %s cannot be used: %w", r.dir, err), at: time.Now()})
	return err
}

// leave marks the lock, where it is held: for others its holder has ended.
func (r *runDir) leave() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return nil
	}
	return r.lock.Leave()
}

func (r *runDir) release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return nil
	}
	return r.lock.Release()
}

// Barred is why nothing can be recorded, and nothing is written to the kernel therefore; nil when all is well.
func (h *Host) Barred() error { return h.run.why() }

// Unrecorded is Barred, or why a record could not be written a moment ago.
func (h *Host) Unrecorded() error {
	if err := h.run.why(); err != nil {
		return err
	}
	if f := h.run.failed.Load(); f != nil && time.Since(f.at) < toldFor {
		return f.err
	}
	return nil
}

// Alone is nil while the lock is held; else it says why not, and another process may do all that this one does.
func (h *Host) Alone() error {
	if h.run.alone.Load() {
		return nil
	}
	return h.run.why()
}

// keepLedger keeps the ledger within its bounds, once there is one, and the lock where others find it. A run directory that could not be
// used at the start is tried again until it can: what stands in it was not known, so that it is read as at a start.
func (h *Host) keepLedger(ctx context.Context) error {
	if h.run.why() != nil {
		if err := h.awaitRunDir(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	step := h.Engine.Pace()
	h.run.ledger.Pace(func() {
		if ctx.Err() == nil { // the end waits for it
			step()
		}
	})
	compacted := make(chan error, 1)
	go func() { compacted <- h.run.ledger.Run(ctx) }()
	err := h.keepLock(ctx)
	cancel()
	return errors.Join(err, <-compacted)
}

func (h *Host) tooLong(err error) {
	h.o.Log.Error("the ledger cannot be made smaller; once it is full nothing is written to the kernel any more", "err", err)
}

// keepLock looks every few seconds whether the files of lock and ledger are there, until ctx ends or another process has the lock. Who removes the run
// directory, as a unit of systemd does with its own that is not preserved, takes the others' word that we are here with it.
func (h *Host) keepLock(ctx context.Context) error {
	tick := time.NewTicker(takeEvery)
	defer tick.Stop()
	for told := ""; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		again, err := h.run.retake()
		if again {
			h.o.Log.Warn("the lock's file had been removed, and is held anew", "dir", h.o.Config.RunDir)
		}
		if err == nil {
			var ledgerAgain bool
			if ledgerAgain, err = h.run.ledger.Look(); ledgerAgain {
				h.o.Log.Warn("the ledger had been removed, and is made anew", "dir", h.o.Config.RunDir)
			}
			again = again || ledgerAgain || err == nil && told != ""
		}
		switch {
		case isHeld(err):
			return err
		case err == nil:
			told = ""
		case err.Error() != told:
			told = err.Error()
			h.o.Log.Error("lock or ledger is lost, and nothing is written to the kernel until both are there again", "err", err)
		}
		if again {
			h.Engine.Repair() // what could not be recorded meanwhile
		}
	}
}

// takeRunDir takes the run directory at the start; what is missing is no error where the program goes on without.
func (h *Host) takeRunDir() (err error) {
	if h.run, err = newRunDir(h.o.Config.RunDir, h.o.Writer, h.tooLong); err != nil {
		return err
	}
	if err = h.run.take(); err == nil || h.o.Usable == nil || isHeld(err) {
		return err
	}
	h.o.Log.Error("nothing is written to the kernel, since it could not be recorded; tried again every few seconds", "err", err)
	return nil
}

// awaitRunDir tries until the run directory can be used, or another process has its lock.
func (h *Host) awaitRunDir(ctx context.Context) error {
	tick := time.NewTicker(takeEvery)
	defer tick.Stop()
	for told := h.run.why().Error(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := h.run.take()
		switch {
		case err == nil:
			h.Relearn()
			h.o.Usable(h.run.lift)
			h.o.Log.Info("the run directory can be used now, and is: what is written to the kernel is recorded", "dir", h.o.Config.RunDir)
			return nil
		case isHeld(err):
			return err
		case err.Error() != told:
			told = err.Error()
			h.o.Log.Error("nothing is written to the kernel", "err", err)
		}
	}
}

func isHeld(err error) bool {
	var held *lock.HeldError
	return errors.As(err, &held)
}
