// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// What an Event is about: the knob of its record.
const (
	EventEviction     = "eviction"
	EventInterference = "interference"
	EventBurst        = "cpu-burst"
	EventMemoryHigh   = "memory-high"
	EventOOMScore     = "oom-score"
)

// Event is something that happened to a pod without a kernel file being written for it.
type Event struct {
	// What is one of the constants, Outcome one word about how it ended; By is the feature or loop that decided.
	What, Outcome, By string
	// UID and Name ("namespace/pod") of the pod; Container is the runtime's id where it is about one.
	UID, Name, Container string
	// Reason tells why, with figures.
	Reason string
	// Err is why it did not work.
	Err error
	// Often: the same comes again and again as long as nothing changes; it is kept once in ten minutes.
	Often bool
}

// record is the event as a line of a ledger.
func (e *Event) record(now time.Time) journal.Record {
	r := journal.Record{
		Time: now, Target: plan.Target{Level: plan.LevelPod, Pod: e.UID, Name: e.Name, Container: e.Container},
		Knob: e.What, Key: e.Outcome, Want: e.Outcome, Owner: e.By, Reason: e.Reason, Via: journal.ViaEvent,
	}
	if e.Container != "" {
		r.Target.Level = plan.LevelContainer
	}
	if e.Err != nil {
		r.Err = e.Err.Error()
	}
	return r
}

// Limits of what is remembered of events, and of those that come often.
const (
	oftenEvery = 10 * time.Minute
	maxOften   = 1024
	// maxKept is how many events are left when the file has grown too long; some 4 MiB.
	maxKept = 8 << 10
)

// Audit keeps events in a ledger of their own below the run directory: in that of writes they would be taken for settings
// that can be restored. What is kept is bounded as a ledger is; of an old pod the newest event of each kind stays, and of all the newest 8192.
//
// No decision waits for it: events of a time in which it cannot be opened are lost to it, and it is opened as soon as it can.
type Audit struct {
	l         *ledger.Ledger
	dir, boot string
	// closed is why nothing can be kept, nil once it could be opened.
	closed atomic.Pointer[error]

	mu   sync.Mutex
	told map[often]time.Time
}

// openEvery is how often an audit that cannot be opened is tried again.
const openEvery = 5 * time.Second

// often is what makes two events the same.
type often struct{ uid, container, what, outcome, by string }

// auditDir is a run directory of its own, so that nobody who reads the ledgers of writes meets events.
func auditDir(runDir string) string { return filepath.Join(runDir, "audit") }

// OpenAudit opens or creates it; Closed says why it could not, and Run tries again. boot is the id of this boot.
func OpenAudit(runDir, writer, boot string) (*Audit, error) {
	dir := auditDir(runDir)
	l, err := ledger.New(dir, writer, ledger.Options{Newest: maxKept})
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	a := &Audit{l: l, dir: dir, boot: boot, told: map[often]time.Time{}}
	a.open()
	return a, nil
}

// open tries to, and reports whether it is; events are kept once closed is nil.
func (a *Audit) open() bool {
	err := a.l.Open()
	if err != nil {
		err = fmt.Errorf("audit: %w", err)
		a.closed.Store(&err)
	}
	return err == nil
}

// Closed is why no event can be kept; nil when they can.
func (a *Audit) Closed() error {
	if err := a.closed.Load(); err != nil {
		return *err
	}
	return nil
}

// Noted are the events of one kind, of earlier lives too, newest first, back to the first of any kind that is not wanted.
func (a *Audit) Noted(what string, wanted func(*journal.Record) bool) ([]journal.Record, error) {
	all, err := ledger.TailWhile(a.dir, maxKept, wanted)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return slices.DeleteFunc(all, func(r journal.Record) bool { return r.Knob != what }), nil
}

// Run opens the file, where that has not been possible, calls opened before anything is kept there, and keeps it within its bounds until ctx ends; it returns nil
// then.
func (a *Audit) Run(ctx context.Context, opened func()) error {
	tick := time.NewTicker(openEvery)
	defer tick.Stop()
	for a.Closed() != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if a.open() {
			opened()
			a.closed.Store(nil)
		}
	}
	return a.l.Run(ctx)
}

// Close closes the file. Run must have ended.
func (a *Audit) Close() error { return a.l.Close() }

// Note keeps events. Those that come while it is closed are not kept, which Closed tells. Safe for concurrent use.
func (a *Audit) Note(now time.Time, events ...Event) error {
	if a.Closed() != nil {
		return nil
	}
	records := make([]journal.Record, 0, len(events))
	for i := range events {
		if e := &events[i]; !e.Often || a.news(e, now) {
			r := e.record(now)
			r.Boot = a.boot // by which the machine's own clock went
			records = append(records, r)
		}
	}
	return a.l.Append(records...)
}

// news reports that the same has not been told for a while, and notes that it is now.
func (a *Audit) news(e *Event, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := often{e.UID, e.Container, e.What, e.Outcome, e.By}
	// A time that lies ahead was told before the clock was set back.
	if at, ok := a.told[k]; ok && now.Sub(at) < oftenEvery && !at.After(now) {
		return false
	}
	if len(a.told) >= maxOften {
		for k, at := range a.told {
			if now.Sub(at) >= oftenEvery || at.After(now) {
				delete(a.told, k)
			}
		}
		if len(a.told) >= maxOften {
			clear(a.told) // more pods than a node has: better twice than never
		}
	}
	a.told[k] = now
	return true
}

// newest joins two lists, each newest first.
func newest(a, b []journal.Record, n int) []journal.Record {
	out := make([]journal.Record, 0, min(n, len(a)+len(b)))
	for len(out) < n && len(a)+len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && !a[0].Time.Before(b[0].Time) {
			out, a = append(out, a[0]), a[1:]
			continue
		}
		out, b = append(out, b[0]), b[1:]
	}
	return out
}
