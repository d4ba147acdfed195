// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// Errors of results.
var (
	// ErrStatic: the kubelet would make the pod again at once.
	ErrStatic = errors.New("static pod")
	// ErrNoAPI: there is no API server to ask.
	ErrNoAPI = errors.New("no API server")
)

// carryOut is the way of one decision.
func (x *Executor) carryOut(ctx context.Context, e evict.Eviction) {
	pod, known := x.o.Pods().Pod(e.Pod)
	switch {
	case known && pod.Static:
		x.finish(e, Failed, ErrStatic)
		return
	case x.o.Observe:
		x.finish(e, Observed, nil)
		x.event(e, "WouldEvict", false)
		return
	}
	uid, grace := e.Pod, time.Duration(-1)
	if known {
		uid = pod.APIUID
		grace = x.grace(e, pod)
	} else if !e.RespectBudget {
		grace = DangerGrace
	}
	err := x.ask(ctx, e, uid, grace)
	switch {
	case ctx.Err() != nil:
	case err == nil, errors.Is(err, kube.ErrNotFound), errors.Is(err, kube.ErrConflict):
		// Not found and conflict: that pod is deleted already, and the snapshot will say so.
		since := x.leave(e, own(grace, pod))
		x.report(Result{Eviction: e, Outcome: Accepted, Took: x.o.Clock() - since})
		if err == nil {
			x.event(e, "Evicted", true)
		}
	case errors.Is(err, kube.ErrBudget):
		x.refuse(e, err)
	case !e.RespectBudget && x.o.Stop != nil:
		x.stop(ctx, e, own(grace, pod), err)
	default:
		x.finish(e, Failed, err)
	}
}

// grace is what the pod gets: its own period, within our bounds.
func (x *Executor) grace(e evict.Eviction, pod *pods.Pod) time.Duration {
	grace := pod.Grace
	if x.o.Grace >= 0 {
		grace = min(grace, x.o.Grace)
	}
	if !e.RespectBudget {
		grace = min(grace, DangerGrace)
	}
	return grace
}

// own is the grace period that the pod really gets.
func own(grace time.Duration, pod *pods.Pod) time.Duration {
	if grace < 0 && pod != nil {
		return pod.Grace
	}
	return max(grace, 0)
}

// ask asks the API server: to evict, and in danger past the budget.
func (x *Executor) ask(ctx context.Context, e evict.Eviction, uid string, grace time.Duration) error {
	if x.o.API == nil {
		return ErrNoAPI
	}
	timeout := callTimeout
	if !e.RespectBudget {
		timeout = dangerTimeout
	}
	call := func(f func(context.Context, string, string, string, time.Duration) error) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return f(ctx, e.Namespace, e.Name, uid, grace)
	}
	err := call(x.o.API.Evict)
	if !e.RespectBudget && errors.Is(err, kube.ErrBudget) {
		err = call(x.o.API.DeletePod)
	}
	return err
}

// stop begins to end the pod's containers on the node, beside everything else: it lasts as long as they take.
func (x *Executor) stop(ctx context.Context, e evict.Eviction, grace time.Duration, cause error) {
	since := x.leave(e, grace)
	x.stops.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, grace+slack)
		defer cancel()
		r := ended{eviction: e, since: since, cause: cause, err: x.o.Stop(bounded, e.Pod, grace)}
		select {
		case x.ended <- r:
		case <-ctx.Done():
		}
	})
}

// stopped takes the result of a stop.
func (x *Executor) stopped(r ended) {
	took := x.o.Clock() - r.since
	if r.err == nil {
		x.report(Result{Eviction: r.eviction, Outcome: Stopped, Err: r.cause, Took: took})
		x.event(r.eviction, "ContainersStopped", true)
		return
	}
	if r.cause != nil {
		// Neither way worked: it does not leave.
		x.mu.Lock()
		delete(x.leaving, r.eviction.Pod)
		x.mu.Unlock()
	}
	x.report(Result{Eviction: r.eviction, Outcome: Failed, Err: errors.Join(r.cause, fmt.Errorf("stop its containers: %w", r.err)), Took: took})
}

// leave notes that the pod is on its way, and returns since when.
func (x *Executor) leave(e evict.Eviction, grace time.Duration) unit.Micros {
	now := x.o.Clock()
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.leaving[e.Pod]
	if d == nil {
		d = &departure{since: now}
		x.leaving[e.Pod] = d
	}
	d.eviction, d.accepted, d.deadline = e, true, now+micros(grace+slack)
	return d.since
}

// refuse notes a budget's answer.
func (x *Executor) refuse(e evict.Eviction, err error) {
	hold := refusedFor
	var answer *kube.Error
	if errors.As(err, &answer) && answer.RetryAfter > 0 {
		hold = answer.RetryAfter
	}
	x.mu.Lock()
	x.refused[e.Pod] = x.o.Clock() + micros(hold)
	x.mu.Unlock()
	x.finish(e, Refused, err)
	x.event(e, "EvictionRefused", false)
}

// finish ends a departure that does not take place.
func (x *Executor) finish(e evict.Eviction, o Outcome, err error) {
	x.mu.Lock()
	delete(x.leaving, e.Pod)
	x.mu.Unlock()
	x.report(Result{Eviction: e, Outcome: o, Err: err})
}

// lookAfter sees who is gone and who should be.
func (x *Executor) lookAfter(ctx context.Context) {
	now, snapshot := x.o.Clock(), x.o.Pods()
	x.mu.Lock()
	uids := slices.Sorted(maps.Keys(x.leaving))
	x.mu.Unlock()
	for _, uid := range uids {
		x.mu.Lock()
		d := *x.leaving[uid]
		x.mu.Unlock()
		switch {
		case !d.accepted:
		case x.gone(snapshot, uid):
			x.mu.Lock()
			delete(x.leaving, uid)
			x.mu.Unlock()
			x.report(Result{Eviction: d.eviction, Outcome: Gone, Took: now - d.since})
		case now >= d.deadline && !d.stopped:
			x.help(ctx, d, now)
		}
	}
	for key, at := range x.told {
		if now-at >= micros(repeatEvent) {
			delete(x.told, key)
		}
	}
}

// gone reports that nothing of the pod runs here.
func (x *Executor) gone(snapshot *pods.Snapshot, uid string) bool {
	if x.o.Alive != nil && x.o.Alive(uid) {
		return false
	}
	p, here := snapshot.Pod(uid)
	return !here || p.Finished()
}

// help stops the containers of a pod that is overdue, once.
func (x *Executor) help(ctx context.Context, d departure, now unit.Micros) {
	x.mu.Lock()
	if live := x.leaving[d.eviction.Pod]; live != nil {
		live.stopped = true
	}
	x.mu.Unlock()
	x.report(Result{Eviction: d.eviction, Outcome: Overdue, Took: now - d.since})
	if x.o.Stop != nil {
		x.stop(ctx, d.eviction, 0, nil)
	}
}

func (x *Executor) report(r Result) {
	if x.o.OnResult != nil {
		x.o.OnResult(r)
	}
}

// event keeps a word about a pod for tell; the same one is not repeated for a while.
func (x *Executor) event(e evict.Eviction, reason string, warning bool) {
	key := told{e.Pod, reason}
	if _, ok := x.told[key]; ok || len(x.events) == maxEvents || x.o.API == nil {
		return
	}
	x.told[key] = x.o.Clock()
	uid := e.Pod
	if pod, ok := x.o.Pods().Pod(e.Pod); ok {
		uid = pod.APIUID
	}
	x.events = append(x.events, kube.Event{
		Regarding: kube.Object{APIVersion: "v1", Kind: "Pod", Namespace: e.Namespace, Name: e.Name, UID: uid},
		Warning:   warning, Reason: reason, Action: "Evict", Note: e.Reason, At: time.Now(),
	})
}

// tell sends the events, behind all evictions. One that cannot be sent is dropped: the result has been reported.
func (x *Executor) tell(ctx context.Context) {
	for len(x.events) > 0 && ctx.Err() == nil {
		e := x.events[0]
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		err := x.o.API.Record(bounded, x.o.Node, e)
		cancel()
		x.events = x.events[1:]
		if err != nil && !errors.Is(err, kube.ErrConflict) {
			x.events = nil // the server is away or says no; it would to the others too
		}
	}
}
