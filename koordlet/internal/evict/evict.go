// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"context"
	"errors"
	"log/slog"
	"maps"
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
	// slack is what kubelet and runtime may need beyond the grace period to end a pod.
	slack = 10 * time.Second
	// missingFor is what the kubelet may need to hear of what the API server has forgotten.
	missingFor = time.Minute
	// helpAgain is after how long a pod that was stopped and still runs is stopped again.
	helpAgain = time.Minute
	// firstPause follows the first failure of a pod; it doubles up to mostPause with each.
	firstPause = 10 * time.Second
	mostPause  = 10 * time.Minute
	// refusedFor is how long a budget's no holds when the server does not say.
	refusedFor = 30 * time.Second
	// unknownFor is how long a victim whose turn has not come stays chosen without a measurement, or a step, that says so, where steps are not so seldom
	// that lapse is more. Until then others count on it.
	unknownFor = 30 * time.Second
	// check is how often those that leave are looked at.
	check = time.Second
	// repeatEvent is how long the same word about the same pod is not repeated.
	repeatEvent = 10 * time.Minute
	maxEvents   = 64
)

// Options of New.
type Options struct {
	// API may be nil: then only Hands can help, and only in danger.
	API API
	// Hands may be nil: then nothing is stopped on the node, and a pod's absence from the snapshot is its end.
	Hands *Hands
	// Stops is when containers are stopped on the node; the zero value is never.
	Stops Stops
	// Pods is the current snapshot; required.
	Pods func() *pods.Snapshot
	// Measure is what a pod (by UID) and the node use; may be nil.
	Measure func(uid string) Usage
	// Clock is the loops' clock (CLOCK_BOOTTIME); required.
	Clock func() unit.Micros
	// Node is our Node object's name.
	Node string
	// Grace bounds what a pod gets to end by itself; negative is the pod's own. Default 30 s.
	Grace time.Duration
	// Observe evicts nobody: decisions are recorded only.
	Observe bool
	// Interval is how often the loops measure and decide; default 1 s.
	Interval time.Duration
	// Every and Burst limit the rate of evictions outside of danger: Burst at once, then one per Every. Default 8 and 1 s.
	Every time.Duration
	Burst int
	// OnResult is called in Run's goroutine with each step of an eviction; may be nil.
	OnResult func(Result)
	// Log hears when events are not recorded; may be nil.
	Log *slog.Logger
}

// Stops is when the containers of a victim are stopped on the node.
type Stops uint8

// The cases. Each includes the one before.
const (
	StopNever Stops = iota
	// StopEvicted: when the API server has accepted its eviction, it outlives its grace period, and memory is in danger.
	StopEvicted
	// StopDanger: also when memory is in danger and no API server can be reached. The kubelet may start them again.
	StopDanger
)

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
	// Stopped: its containers were stopped on the node. Err is why the API server did not help; nil when it had accepted.
	Stopped
	// Observed: it would have been evicted.
	Observed
	// Missing: the API server does not have that pod any more; the node still has.
	Missing
	// Dropped: what it was chosen for was over before its turn came.
	Dropped
)

// String is a word for metrics and logs.
func (o Outcome) String() string {
	return [...]string{"accepted", "gone", "refused", "failed", "overdue", "stopped", "observed", "missing", "dropped"}[min(int(o), 8)]
}

// Result is one step of one eviction.
type Result struct {
	evict.Eviction
	Outcome Outcome
	Err     error
	// Took is the time since it was decided.
	Took unit.Micros
	// Pause is how long the pod is not asked for again; 0 when that is not held against it.
	Pause time.Duration
	// Release is what its end has brought, once that is known: of Gone, and of Stopped with an Err.
	Release *Release
}

// Executor carries evictions out. Follow, Leaving, Held and Danger are safe for concurrent use; Run is one goroutine.
type Executor struct {
	o    Options
	wake chan struct{}

	mu sync.Mutex
	// waiting are decisions in the order to be carried out; leaving are those of them and those that were accepted, by UID.
	waiting []evict.Eviction
	leaving map[string]*departure
	// decisions are the last step's, less what was asked for since; dropped is who it did not need any more, and that has not been told.
	decisions []evict.Decision
	dropped   []Result
	// followedAt is when that step was taken.
	followedAt unit.Micros
	// asked is who was asked for since Held was called: a step that has begun before does not know of it.
	asked []evict.Eviction
	// deleted are pods that somebody else, or we in an earlier life, has deleted, since when that has been seen.
	deleted map[string]unit.Micros
	// held is who is not to be asked for.
	held map[string]hold
	// danger is whether memory was in danger at dangerAt.
	danger   bool
	dangerAt unit.Micros
	// calm ends the call of a calm eviction that began at calmAt; nil while none is under way, or once its end is near.
	calm   context.CancelFunc
	calmAt unit.Micros

	// beside are calls of Hands.Stop and one of API.Record on their way; ended and sent bring their results.
	beside sync.WaitGroup
	ended  chan ended
	sent   chan sent

	// The rest belongs to Run.
	tokens   float64
	tokensAt unit.Micros
	// silentUntil is until when a server that has answered neither an eviction nor a deletion is taken to be away.
	silentUntil unit.Micros
	// events are to be sent; telling: one is on its way; mute: the last one was dropped, which has been said.
	events        []kube.Event
	telling, mute bool
	told          map[told]unit.Micros
}

// departure is one pod that leaves.
type departure struct {
	eviction evict.Eviction
	since    unit.Micros
	// needed is when a step last said that it must go, until it is sent.
	needed unit.Micros
	// sent tells whether it has been carried out; deadline is when it must be gone; before is what it used then.
	sent     bool
	deadline unit.Micros
	before   Usage
	// missing: the API server does not have it.
	missing bool
	// mayStop: its containers may be stopped on the node as far as the pod is concerned.
	mayStop bool
	// overdue was told; stopping: a stop is on its way; helpAt is when another one may follow.
	overdue, stopping bool
	helpAt            unit.Micros
	// settleAt is when the release of one that no API server knows of can be told, cause is why that did not help.
	settleAt unit.Micros
	cause    error
}

// hold keeps a pod from being asked for until an instant.
type hold struct {
	why   evict.Held
	until unit.Micros
	// pause is the last one, of failures.
	pause time.Duration
}

// ended is the result of one call of Stop.
type ended struct {
	eviction evict.Eviction
	// cause is why the API server did not help; nil for one that was overdue.
	cause, err error
}

// New makes an Executor.
func New(o Options) (*Executor, error) {
	if o.Pods == nil || o.Clock == nil {
		return nil, errors.New("make executor: Pods and Clock are required")
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.Every <= 0 {
		o.Every = DefaultEvery
	}
	if o.Burst <= 0 {
		o.Burst = DefaultBurst
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Executor{
		o: o, wake: make(chan struct{}, 1), ended: make(chan ended), sent: make(chan sent), tokens: float64(o.Burst), tokensAt: o.Clock(),
		leaving: map[string]*departure{}, deleted: map[string]unit.Micros{}, held: map[string]hold{}, told: map[told]unit.Micros{},
	}, nil
}

// settle is after how long the newest samples of a pod are younger than its containers' end.
func (o *Options) settle() unit.Micros { return micros(3*o.Interval + time.Second) }

// current is for how long what a step has said of the node holds: until two more are missing.
func (o *Options) current() unit.Micros { return micros(3 * o.Interval) }

// lapse is after how long without a step, or a measurement, nothing that was decided before holds any more.
func (o *Options) lapse() unit.Micros { return max(micros(unknownFor), o.current()) }

// Danger takes the word of the loops whether memory is in danger; it holds until two of them are missing.
func (x *Executor) Danger(yes bool) {
	now := x.o.Clock()
	x.mu.Lock()
	x.danger, x.dangerAt = yes, now
	x.mu.Unlock()
}

func (x *Executor) inDanger(now unit.Micros) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.danger && now-x.dangerAt < x.o.current()
}

// Leaving are the UIDs of pods that were evicted or deleted and are not gone, with since when. Of those that somebody else
// has deleted, or we in an earlier life, that is when it was first seen; of our own it is so late that a pod with a long
// grace period is counted on until that is over, and one whose turn has not come for as long as it waits: nobody has asked it to go.
func (x *Executor) Leaving() map[string]unit.Micros {
	now, snapshot := x.o.Clock(), x.o.Pods()
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[string]unit.Micros, len(x.leaving)+len(x.deleted))
	for _, p := range snapshot.Pods {
		if !p.Deleting() || p.Finished() {
			continue
		}
		since, seen := x.deleted[p.UID]
		if !seen {
			since = now
		}
		out[p.UID] = since
	}
	x.deleted = maps.Clone(out)
	for uid, d := range x.leaving {
		switch _, deleted := out[uid]; {
		case d.sent:
			out[uid] = max(d.since, d.deadline-evict.DefaultPatience)
		case !deleted:
			out[uid] = now
		}
	}
	return out
}

// Held are the UIDs of pods that are not to be asked for now, and of those that Leaving has and that nobody has asked to go.
func (x *Executor) Held() map[string]evict.Held {
	now := x.o.Clock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = nil
	out := make(map[string]evict.Held, len(x.held))
	for uid, h := range x.held {
		switch {
		case now < h.until:
			out[uid] = h.why
		case now >= h.until+micros(2*h.pause):
			delete(x.held, uid)
		}
	}
	for i := range x.waiting {
		uid := x.waiting[i].Pod
		if _, deleted := x.deleted[uid]; !deleted { // by somebody else: it goes without being asked
			if out[uid] = evict.ByTurn; !x.waiting[i].RespectBudget {
				out[uid] = evict.ByDanger
			}
		}
	}
	return out
}

// Run works until ctx ends, and returns nil then, once an eviction that is on its way has its answer.
func (x *Executor) Run(ctx context.Context) error {
	defer x.beside.Wait()
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
		case r := <-x.sent:
			x.wasSent(r)
		}
		for ctx.Err() == nil {
			x.tellDropped()
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

// micros is d on the loops' clock.
func micros(d time.Duration) unit.Micros { return unit.Micros(d / time.Microsecond) }
