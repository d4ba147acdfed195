// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// API is the API server as far as evictions need it; *kube.Client is one.
type API interface {
	Evict(ctx context.Context, namespace, name, uid string, grace time.Duration) error
	DeletePod(ctx context.Context, namespace, name, uid string, grace time.Duration) error
	Record(ctx context.Context, instance string, e kube.Event) error
}

// Defaults of Options, and fixed times.
const (
	DefaultGrace = 30 * time.Second
	DefaultEvery = time.Second
	DefaultBurst = 8
	// DangerGrace is what a victim gets while the node is in danger: the kernel kills sooner than a long goodbye ends.
	DangerGrace = 5 * time.Second

	callTimeout   = 5 * time.Second
	dangerTimeout = 2 * time.Second
	// slack is what a runtime may need beyond the grace period to end a pod.
	slack = 10 * time.Second
	// refusedFor is how long a budget's no holds when the server does not say.
	refusedFor = 30 * time.Second
	// check is how often those that leave are looked at.
	check = time.Second
	// repeatEvent is how long the same word about the same pod is not repeated.
	repeatEvent = 10 * time.Minute
	maxEvents   = 64
)

// Options of New.
type Options struct {
	// API may be nil: then only Stop can help, and only in danger.
	API API
	// Stop ends the containers of a pod (by UID) on this node, with a grace period, and returns when they have ended. It is
	// called in a goroutine of its own and must obey ctx; may be nil.
	Stop func(ctx context.Context, uid string, grace time.Duration) error
	// Pods is the current snapshot; required.
	Pods func() *pods.Snapshot
	// Alive says that processes of the pod (by UID) still run; nil: its absence from the snapshot is enough.
	Alive func(uid string) bool
	// Clock is the loops' clock (CLOCK_BOOTTIME); required.
	Clock func() unit.Micros
	// Node is our Node object's name.
	Node string
	// Grace bounds what a pod gets to end by itself; negative is the pod's own. Default 30 s.
	Grace time.Duration
	// Observe evicts nobody: decisions are recorded only.
	Observe bool
	// Every and Burst limit the rate of evictions outside of danger: Burst at once, then one per Every. Default 8 and 1 s.
	Every time.Duration
	Burst int
	// OnResult is called in Run's goroutine with each step of an eviction; may be nil.
	OnResult func(Result)
}

// Outcome is a step of one eviction.
type Outcome uint8

// The outcomes.
const (
	// Accepted: the pod is being deleted.
	Accepted Outcome = iota
	// Gone: no process of it runs any more.
	Gone
	// Refused: its budget does not allow it now.
	Refused
	// Failed: nothing happened, see Err.
	Failed
	// Overdue: it still runs though its grace period is over.
	Overdue
	// Stopped: its containers were stopped on the node.
	Stopped
	// Observed: it would have been evicted.
	Observed
)

// String is a word for metrics and logs.
func (o Outcome) String() string {
	return [...]string{"accepted", "gone", "refused", "failed", "overdue", "stopped", "observed"}[min(int(o), 6)]
}

// Result is one step of one eviction.
type Result struct {
	evict.Eviction
	Outcome Outcome
	Err     error
	// Took is the time since it was decided.
	Took unit.Micros
}

// Executor carries evictions out. Submit, Leaving and Refused are safe for concurrent use; Run is one goroutine.
type Executor struct {
	o    Options
	wake chan struct{}

	mu sync.Mutex
	// waiting are decisions in the order to be carried out; leaving are those of them and those that were accepted, by UID.
	waiting []evict.Eviction
	leaving map[string]*departure
	// refused holds until when a budget's no counts.
	refused map[string]unit.Micros

	// stops are calls of Stop on their way; ended brings their results.
	stops sync.WaitGroup
	ended chan ended

	// The rest belongs to Run.
	tokens   float64
	tokensAt unit.Micros
	events   []kube.Event
	told     map[told]unit.Micros
}

// departure is one pod that leaves.
type departure struct {
	eviction evict.Eviction
	since    unit.Micros
	// accepted tells whether it has been sent; deadline is when it must be gone; stopped that it was helped along.
	accepted bool
	deadline unit.Micros
	stopped  bool
}

// ended is the result of one call of Stop.
type ended struct {
	eviction evict.Eviction
	since    unit.Micros
	// cause is why the API server did not help; nil for one that was overdue.
	cause, err error
}

// told is an event that was sent.
type told struct{ uid, reason string }

// New makes an Executor.
func New(o Options) (*Executor, error) {
	if o.Pods == nil || o.Clock == nil {
		return nil, errors.New("make executor: Pods and Clock are required")
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Every <= 0 {
		o.Every = DefaultEvery
	}
	if o.Burst <= 0 {
		o.Burst = DefaultBurst
	}
	return &Executor{
		o: o, wake: make(chan struct{}, 1), ended: make(chan ended), tokens: float64(o.Burst), tokensAt: o.Clock(),
		leaving: map[string]*departure{}, refused: map[string]unit.Micros{}, told: map[told]unit.Micros{},
	}, nil
}

// Submit takes decisions and returns at once. A pod that is leaving already is not evicted again, but a decision in danger
// hurries one that still waits.
func (x *Executor) Submit(evictions []evict.Eviction) {
	now := x.o.Clock()
	x.mu.Lock()
	for _, e := range evictions {
		if d := x.leaving[e.Pod]; d == nil {
			x.leaving[e.Pod] = &departure{eviction: e, since: now}
			x.waiting = append(x.waiting, e)
			continue
		}
		for i := range x.waiting {
			if x.waiting[i].Pod == e.Pod && x.waiting[i].RespectBudget && !e.RespectBudget {
				x.waiting[i] = e
			}
		}
	}
	x.mu.Unlock()
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Leaving are the UIDs of pods that were evicted or deleted and are not gone, with since when; 0 for those that somebody
// else deleted, or we in an earlier life.
func (x *Executor) Leaving() map[string]unit.Micros {
	snapshot := x.o.Pods()
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[string]unit.Micros, len(x.leaving))
	for _, p := range snapshot.Pods {
		if p.Deleting() && !p.Finished() {
			out[p.UID] = 0
		}
	}
	for uid, d := range x.leaving {
		out[uid] = d.since
	}
	return out
}

// Refused are the UIDs of pods whose budget has just refused.
func (x *Executor) Refused() map[string]bool {
	now := x.o.Clock()
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[string]bool, len(x.refused))
	for uid, until := range x.refused {
		if now < until {
			out[uid] = true
			continue
		}
		delete(x.refused, uid)
	}
	return out
}

// Run works until ctx ends, and returns nil then.
func (x *Executor) Run(ctx context.Context) error {
	defer x.stops.Wait()
	ticker := time.NewTicker(check)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-x.wake:
		case r := <-x.ended:
			x.stopped(r)
		}
		for ctx.Err() == nil {
			e, ok := x.next()
			if !ok {
				break
			}
			x.carryOut(ctx, e)
		}
		x.lookAfter(ctx)
		x.tell(ctx)
	}
}

// next takes the decision to carry out now: danger first, the others at their rate.
func (x *Executor) next() (evict.Eviction, bool) {
	now := x.o.Clock()
	x.tokens = min(x.tokens+float64(now-x.tokensAt)/float64(micros(x.o.Every)), float64(x.o.Burst))
	x.tokensAt = now
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, e := range x.waiting {
		if e.RespectBudget {
			continue
		}
		x.waiting = append(x.waiting[:i:i], x.waiting[i+1:]...)
		return e, true
	}
	if len(x.waiting) == 0 || x.tokens < 1 {
		return evict.Eviction{}, false
	}
	x.tokens--
	e := x.waiting[0]
	x.waiting = x.waiting[1:]
	return e, true
}

// micros is d on the loops' clock.
func micros(d time.Duration) unit.Micros { return unit.Micros(d / time.Microsecond) }
