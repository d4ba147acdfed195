// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"context"
	"errors"
	"fmt"
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
	// ErrSilent: the API server has just answered nobody, so that its silence says nothing about the pod.
	ErrSilent = errors.New("the API server answers nobody")
	// ErrYielded: in calm no more was waited for an answer, since somebody in danger waits; as where none has come in time.
	ErrYielded = fmt.Errorf("%w: a pod in danger goes first", context.DeadlineExceeded)
)

// carryOut is the way of one decision. The end of ctx does not cut it: what the API server has been asked for it may do, and an answer is waited for,
// callTimeout at most.
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
	case ctx.Err() == nil && !e.RespectBudget && unreachable(err) && x.o.Hands != nil && x.o.Stops >= StopDanger && mayStop(pod):
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

// ask asks the API server: to evict, and in danger past the budget, past a webhook that does not decide, and past an eviction that is not answered,
// which a webhook of somebody else's or a server that tries again holds up. Where a deletion was not answered either the server is away: for a while no
// second answer of it is waited for. In calm the wait ends sooner for somebody in danger (hurry).
func (x *Executor) ask(ctx context.Context, e evict.Eviction, uid string, grace time.Duration) error {
	if x.o.API == nil {
		return ErrNoAPI
	}
	timeout := callTimeout
	if !e.RespectBudget {
		timeout = dangerTimeout
	}
	call := func(f func(context.Context, string, string, string, time.Duration) error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		if e.RespectBudget {
			x.calmCall(cancel)
			defer x.calmCall(nil)
		}
		err := f(ctx, e.Namespace, e.Name, uid, grace)
		if errors.Is(err, context.Canceled) { // by hurry alone
			err = ErrYielded
		}
		if !unanswered(err) {
			x.silentUntil = 0
		}
		return err
	}
	err := call(x.o.API.Evict)
	switch {
	case e.RespectBudget:
	case errors.Is(err, kube.ErrBudget), errors.Is(err, kube.ErrWebhook):
		return call(x.o.API.DeletePod)
	case !unanswered(err) || ctx.Err() != nil:
	case x.o.Clock() < x.silentUntil:
		return fmt.Errorf("%w: %w", ErrSilent, err)
	default:
		second := call(x.o.API.DeletePod)
		if second == nil {
			return nil
		}
		if unanswered(second) {
			x.silentUntil = x.o.Clock() + micros(firstPause)
		}
		return errors.Join(err, second)
	}
	return err
}

// unanswered reports that there was no answer in time, be it that no server is there or that it is held up over this one pod.
func unanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrStop) && !errors.Is(err, ErrSilent)
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
// its own. Where there was no answer that cannot be told: the next candidate has his turn, and a server that was away costs the first pause at most. Of a
// server that is known to answer nobody just now nothing is held against anybody, or the turn would pass to ever worse victims.
func (x *Executor) fail(e evict.Eviction, err error) {
	var pause time.Duration
	x.mu.Lock()
	h := x.held[e.Pod]
	switch {
	case unanswered(err):
		pause = firstPause
	case ofPod(err):
		pause = min(max(2*h.pause, firstPause), mostPause)
		h.pause = pause
	}
	if pause > 0 {
		h.why, h.until = evict.ByFailure, x.o.Clock()+micros(pause)
		x.held[e.Pod] = h
	}
	x.mu.Unlock()
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
