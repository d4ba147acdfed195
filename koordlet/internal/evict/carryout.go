// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"context"
	"errors"
	"net/http"
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
	// ErrStays: the API server had agreed, or did not have the pod, and yet nobody ends it.
	ErrStays = errors.New("nobody ends it")
	// ErrStop: the runtime did not stop its containers.
	ErrStop = errors.New("stop its containers")
)

// carryOut is the way of one decision.
func (x *Executor) carryOut(ctx context.Context, e evict.Eviction) {
	pod, known := x.o.Pods().Pod(e.Pod)
	switch {
	case known && pod.Static:
		x.fail(e, ErrStatic)
		return
	case x.o.Observe:
		x.finish(e, Result{Eviction: e, Outcome: Observed})
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
	case err == nil:
		since := x.leave(e, pod, own(grace, pod)+slack)
		x.report(Result{Eviction: e, Outcome: Accepted, Took: x.o.Clock() - since})
		x.event(e, "Evicted", true)
	case errors.Is(err, kube.ErrNotFound), errors.Is(err, kube.ErrConflict):
		// The pod with this UID is gone there already, and the snapshot will say so, or it is not the API server's.
		since := x.leave(e, pod, missingFor)
		x.change(e.Pod, func(d *departure) { d.missing = true })
		x.report(Result{Eviction: e, Outcome: Missing, Err: err, Took: x.o.Clock() - since})
	case errors.Is(err, kube.ErrBudget):
		x.refuse(e, err)
	case !e.RespectBudget && unreachable(err) && x.o.Hands != nil && x.o.Stops >= StopDanger && mayStop(pod):
		x.leave(e, pod, 0)
		x.stop(ctx, e, own(grace, pod), err)
	default:
		x.fail(e, err)
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

// ask asks the API server: to evict, and in danger past the budget, and past a webhook that does not decide.
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
	if !e.RespectBudget && (errors.Is(err, kube.ErrBudget) || errors.Is(err, kube.ErrWebhook)) {
		err = call(x.o.API.DeletePod)
	}
	return err
}

// unreachable reports that no API server has answered, or one in its place that has none behind it.
func unreachable(err error) bool {
	var answer *kube.Error
	if errors.As(err, &answer) {
		return answer.Code >= http.StatusBadGateway && answer.Code <= http.StatusGatewayTimeout
	}
	return !errors.Is(err, ErrStatic) && !errors.Is(err, ErrStays)
}

// ofPod reports that a failure is the pod's own: the next candidate may fare better. Where nobody answers, or the server has
// no time or does not know us, all would fare alike.
func ofPod(err error) bool {
	if errors.Is(err, ErrStop) {
		return true
	}
	var answer *kube.Error
	return !unreachable(err) && !errors.Is(err, kube.ErrBusy) && (!errors.As(err, &answer) || answer.Code != http.StatusUnauthorized)
}

// mayStop reports whether the containers of a pod may be stopped on the node: one that is known, and whose end is neither undone
// at once nor too much to ask, whatever was decided.
func mayStop(pod *pods.Pod) bool {
	return pod != nil && !pod.Static && !pod.DaemonSet && !evict.Above(pod.Priority)
}

// leave notes that the pod is on its way and must be gone after a time, and returns since when.
func (x *Executor) leave(e evict.Eviction, pod *pods.Pod, after time.Duration) unit.Micros {
	var before Usage
	if x.o.Measure != nil {
		before = x.o.Measure(e.Pod)
	}
	if x.o.Hands != nil {
		x.o.Hands.Alive(e.Pod) // so that its cgroup is known when the runtime has forgotten it
	}
	now := x.o.Clock()
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.held, e.Pod)
	d := x.leaving[e.Pod]
	if d == nil {
		d = &departure{since: now}
		x.leaving[e.Pod] = d
	}
	d.eviction, d.sent, d.deadline, d.before, d.mayStop = e, true, now+micros(after), before, mayStop(pod)
	return d.since
}

// refuse notes a budget's answer.
func (x *Executor) refuse(e evict.Eviction, err error) {
	pause := refusedFor
	var answer *kube.Error
	if errors.As(err, &answer) && answer.RetryAfter > 0 {
		pause = answer.RetryAfter
	}
	x.mu.Lock()
	x.held[e.Pod] = hold{why: evict.ByBudget, until: x.o.Clock() + micros(pause)}
	x.mu.Unlock()
	x.finish(e, Result{Eviction: e, Outcome: Refused, Err: err, Pause: pause})
	x.event(e, "EvictionRefused", false)
}

// fail notes that an eviction has failed: the pod is not asked for again during a pause that doubles with each failure, if it is
// its own.
func (x *Executor) fail(e evict.Eviction, err error) {
	var pause time.Duration
	if ofPod(err) {
		x.mu.Lock()
		pause = min(max(2*x.held[e.Pod].pause, firstPause), mostPause)
		x.held[e.Pod] = hold{why: evict.ByFailure, until: x.o.Clock() + micros(pause), pause: pause}
		x.mu.Unlock()
	}
	x.finish(e, Result{Eviction: e, Outcome: Failed, Err: err, Pause: pause})
}

// finish ends a departure.
func (x *Executor) finish(e evict.Eviction, r Result) {
	x.mu.Lock()
	delete(x.leaving, e.Pod)
	x.mu.Unlock()
	if x.o.Hands != nil {
		x.o.Hands.forget(e.Pod)
	}
	x.report(r)
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
