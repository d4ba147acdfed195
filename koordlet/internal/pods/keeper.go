// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of Options.
const (
	DefaultInterval = 10 * time.Second
	DefaultMinGap   = 200 * time.Millisecond
	DefaultPatience = 5 * time.Second
	DefaultGrace    = 30 * time.Second

	retry    = time.Second
	followUp = 2 * time.Second
)

// lister is the kubelet.
type lister interface {
	List(ctx context.Context) (pods []*Pod, problems []string, err error)
	Weakness() string
}

// Options of New. At least one source should be given; without any the snapshot stays empty and the state says so.
type Options struct {
	// Kubelet is asked every Interval and when Poke says so; a *Kubelet, nil (and not a nil *Kubelet) when there is none.
	Kubelet lister
	// Follow follows the node's pods at the API server until ctx ends; nil when there is none. It runs while no kubelet answers.
	Follow func(ctx context.Context, sink *APISink) error
	// Interval between two questions. Default 10 s; a question that failed is asked again earlier.
	Interval time.Duration
	// MinGap between two questions that Poke asks for. Default 200 ms.
	MinGap time.Duration
	// Patience is how long the kubelet may fail before the API server is asked. Default 5 s.
	Patience time.Duration
	// Grace is how long a pod is kept that vanished without having ended: a kubelet that starts lists static pods first, and
	// no others at all while the API server is away. Default 30 s.
	Grace time.Duration
	// Alive says that processes of the pod (by UID) still run; such a pod is kept beyond Grace. Nil: nobody knows.
	Alive func(uid string) bool
	// OnChange is called in Run's goroutine with each new snapshot; may be nil.
	OnChange func(*Snapshot)
}

// Keeper keeps the snapshot. Run is the only writer; everything else is safe for concurrent use.
type Keeper struct {
	o    Options
	poke chan struct{}

	snapshot atomic.Pointer[Snapshot]
	state    atomic.Pointer[State]

	// The rest belongs to Run.
	kubelet, api answer
	sink         *APISink
	stop         func()
	asked        time.Time
	// again asks once more soon after a Poke: the kubelet learns a container's id later than the runtime's events tell of it.
	again   bool
	missing map[string]time.Time
}

// answer is what one source said last.
type answer struct {
	Health
	pods     []*Pod
	problems []string
}

// New makes a Keeper with an empty snapshot.
func New(o Options) *Keeper {
	for _, d := range []struct {
		to    *time.Duration
		value time.Duration
	}{{&o.Interval, DefaultInterval}, {&o.MinGap, DefaultMinGap}, {&o.Patience, DefaultPatience}, {&o.Grace, DefaultGrace}} {
		if *d.to <= 0 {
			*d.to = d.value
		}
	}
	k := &Keeper{o: o, poke: make(chan struct{}, 1), missing: map[string]time.Time{}}
	k.snapshot.Store(newSnapshot(0, time.Time{}, nil))
	k.kubelet.Configured, k.api.Configured = o.Kubelet != nil, o.Follow != nil
	k.state.Store(k.describe(FromNobody, time.Time{}))
	return k
}

// Snapshot is who is here; never nil.
func (k *Keeper) Snapshot() *Snapshot { return k.snapshot.Load() }

// State says where the snapshot comes from; never nil.
func (k *Keeper) State() *State { return k.state.Load() }

// Poke asks the kubelet soon: a container has come or gone.
func (k *Keeper) Poke() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, and returns nil then.
func (k *Keeper) Run(ctx context.Context) error {
	now := time.Now()
	k.kubelet.Since, k.api.Since = now, now
	defer k.unfollow()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var heard chan struct{}
		if k.sink != nil {
			heard = k.sink.notify
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			k.ask(ctx)
			k.balance(ctx)
			timer.Reset(k.wait())
		case <-k.poke:
			if k.kubelet.OK {
				k.again = true
				timer.Reset(max(k.o.MinGap-time.Since(k.asked), 0))
			}
		case <-heard:
			k.balance(ctx)
		}
	}
}

// wait is the time to the next question, jittered so that the nodes of a cluster do not ask in step.
func (k *Keeper) wait() time.Duration {
	d := k.o.Interval
	switch {
	case k.again:
		d = min(d, followUp)
	case k.o.Kubelet != nil && !k.kubelet.OK:
		d = min(d, retry)
	}
	k.again = false
	return d - time.Duration(rand.Int64N(int64(d)/10+1))
}

// ask asks the kubelet.
func (k *Keeper) ask(ctx context.Context) {
	if k.o.Kubelet == nil {
		return
	}
	k.asked = time.Now()
	pods, problems, err := k.o.Kubelet.List(ctx)
	if ctx.Err() != nil {
		return
	}
	if k.kubelet.learn(err, time.Now()); err == nil {
		k.kubelet.pods, k.kubelet.problems = pods, problems
	}
}

// failing reports that a source has had its chance.
func (k *Keeper) failing(a *answer) bool { return !a.OK && time.Since(a.Since) >= k.o.Patience }

// balance starts and stops following, takes what it has brought, and publishes the better answer.
func (k *Keeper) balance(ctx context.Context) {
	switch wanted := k.o.Follow != nil && (k.o.Kubelet == nil || k.failing(&k.kubelet)); {
	case wanted && k.sink == nil:
		k.follow(ctx)
	case !wanted && k.sink != nil && k.kubelet.OK:
		k.unfollow()
	}
	if k.sink != nil {
		pods, problems, synced, err := k.sink.take()
		switch {
		case err != nil:
			k.api.learn(err, time.Now())
		case synced:
			k.api.learn(nil, time.Now())
			k.api.pods, k.api.problems = pods, problems
		}
	}
	for _, from := range []Source{FromKubelet, FromAPI} {
		if a := k.of(from); a.OK {
			k.publish(from, a)
			return
		}
	}
	k.state.Store(k.describe(k.State().Source, k.State().Good))
}

// of is the answer of one source.
func (k *Keeper) of(from Source) *answer {
	if from == FromAPI {
		return &k.api
	}
	return &k.kubelet
}

// follow starts the API server's side in a goroutine, which ends with unfollow.
func (k *Keeper) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	sink := newAPISink()
	var group sync.WaitGroup
	group.Go(func() {
		if err := k.o.Follow(ctx, sink); err != nil && ctx.Err() == nil {
			sink.State(err)
		}
	})
	k.sink, k.stop = sink, func() {
		cancel()
		group.Wait()
	}
	k.api.Since = time.Now()
}

// unfollow ends it; what it had said is forgotten.
func (k *Keeper) unfollow() {
	if k.sink == nil {
		return
	}
	k.stop()
	k.sink, k.stop = nil, nil
	k.api = answer{Health: Health{Configured: true, Since: time.Now()}}
}

// publish makes an answer the snapshot.
func (k *Keeper) publish(from Source, a *answer) {
	now := time.Now()
	old := k.Snapshot()
	pods := k.settle(old, a.pods, now)
	old.reuse(pods)
	fresh := newSnapshot(old.Generation+1, now, pods)
	if changed := old.Generation == 0 || !old.same(fresh.Pods); changed {
		k.snapshot.Store(fresh)
		if k.o.OnChange != nil {
			k.o.OnChange(fresh)
		}
	}
	k.state.Store(k.describe(from, now))
}

// settle adds the pods that vanished without having ended, as long as that may be the source's fault.
func (k *Keeper) settle(old *Snapshot, fresh []*Pod, now time.Time) []*Pod {
	here := make(map[string]struct{}, len(fresh))
	out := make([]*Pod, 0, len(fresh))
	for _, p := range fresh {
		here[p.UID] = struct{}{}
		delete(k.missing, p.UID)
		out = append(out, p)
	}
	for _, p := range old.Pods {
		if _, ok := here[p.UID]; ok {
			continue
		}
		since, ok := k.missing[p.UID]
		if !ok {
			since = now
		}
		if !p.Finished() && !p.Deleting() && now.Sub(since) < k.o.Grace || k.o.Alive != nil && k.o.Alive(p.UID) {
			k.missing[p.UID] = since
			out = append(out, p)
			continue
		}
		delete(k.missing, p.UID)
	}
	return out
}
