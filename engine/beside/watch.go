// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package beside

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// order has the programs with an engine by their names as writers, who goes first before the others.
var order = [...]string{"nri", "cri", "koordlet"}

// First are the writers that go before one; none for who is not among them. Nobody waits for anybody who waits for him.
func First(writer string) []string {
	i := slices.Index(order[:], writer)
	return slices.Clone(order[:max(i, 0)])
}

// Every is how often it is looked who is there: for so long two or none may write after one has come or gone, which the
// repair pass evens out.
const Every = time.Second

// silence is how old the status of a program that works may be; it is written every five seconds. A plugin that is stuck
// has been dropped by the runtime long before.
const silence = 12 * time.Second

// Watch knows whether somebody who goes first is connected to the runtime of this node. Its methods may be called from any
// goroutine.
type Watch struct {
	runDir  string
	first   []string
	covered atomic.Bool
	gone    func()

	mu      sync.Mutex // guards readers, one for each of first
	readers []status.Reader
}

// New makes a Watch for a writer. runDir is the one that the programs of the node share, proc is "/proc". Nothing has been
// looked at yet.
func New(runDir, proc, writer string) *Watch {
	w := &Watch{runDir: runDir, first: First(writer), gone: func() {}}
	for _, name := range w.first {
		w.readers = append(w.readers, status.Reader{RunDir: runDir, ProcRoot: proc, Writer: name})
	}
	return w
}

// OnGone sets what is called when the last of those who go first has gone. Call it before Run.
func (w *Watch) OnGone(f func()) { w.gone = f }

// Covered is the answer of the last look.
func (w *Watch) Covered() bool { return w.covered.Load() }

// Look looks again.
func (w *Watch) Look() {
	now := w.look()
	if w.covered.Swap(now) && !now {
		w.gone()
	}
}

func (w *Watch) look() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.readers {
		if e := w.readers[i].Read(); w.covers(&e) {
			return true
		}
	}
	return false
}

// covers reports whether the writer of a status lives and is connected. The lock comes last: it says more than
// the process does, which is listed until somebody has buried it and while it gives its things back, and to try one that is
// free could be in the way of its program's start.
func (w *Watch) covers(e *status.Entry) bool {
	return e.Age(time.Now(), boottime.Now()) < silence && w.connected(e)
}

func (w *Watch) connected(e *status.Entry) bool {
	return e.Alive && !e.ConnectedSince.IsZero() && lock.Alive(lock.Path(w.runDir, e.Writer))
}

// Now is the answer at this moment.
func (w *Watch) Now() bool {
	w.Look()
	return w.Covered()
}

// InPath reports whether one of those who go first stands between the runtime and us, and decides on what we send. How old its word is does
// not matter: a full disk keeps it from saying more. To take one that has got stuck for present is mended by the drift check, once it is
// dropped; what two have decided on, one after the other, is not.
func (w *Watch) InPath() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.readers {
		if e := w.readers[i].Read(); w.connected(&e) {
			return true
		}
	}
	return false
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.Look()
		}
	}
}
