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

	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// lookAfter sees who is gone and who should be.
func (x *Executor) lookAfter(ctx context.Context) {
	now, snapshot := x.o.Clock(), x.o.Pods()
	x.mu.Lock()
	uids := slices.Sorted(maps.Keys(x.leaving))
	x.mu.Unlock()
	for _, uid := range uids {
		d, here := x.departure(uid)
		switch {
		case !here: // it was dropped a moment ago
		case !d.sent, d.stopping:
		case x.gone(snapshot, uid):
			r := Result{Eviction: d.eviction, Outcome: Gone, Err: d.cause, Took: now - d.since, Release: x.release(&d, true)}
			if d.cause != nil {
				r.Outcome = Stopped
			}
			x.finish(d.eviction, r)
		case d.settleAt != 0:
			if now >= d.settleAt {
				x.finish(d.eviction, Result{Eviction: d.eviction, Outcome: Stopped, Err: d.cause, Took: now - d.since, Release: x.release(&d, false)})
			}
		case now < d.deadline:
		case stays(snapshot, uid) && (d.missing || now >= d.deadline+micros(missingFor)):
			x.fail(d.eviction, ErrStays)
		default:
			x.late(ctx, &d, now, stays(snapshot, uid))
		}
	}
	for key, at := range x.told {
		if now-at >= micros(repeatEvent) {
			delete(x.told, key)
		}
	}
}

// departure is a copy of one that is still here.
func (x *Executor) departure(uid string) (d departure, here bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.leaving[uid]; p != nil {
		return *p, true
	}
	return departure{}, false
}

// gone reports that no process of the pod is left here, or, where its cgroup is not known, that the pod is not.
func (x *Executor) gone(snapshot *pods.Snapshot, uid string) bool {
	if x.o.Hands != nil {
		if alive, known := x.o.Hands.Alive(uid); known {
			return !alive
		}
	}
	p, here := snapshot.Pod(uid)
	return !here || p.Finished()
}

// stays reports that a pod runs on as if nobody had asked for it, as far as the node has heard.
func stays(snapshot *pods.Snapshot, uid string) bool {
	p, here := snapshot.Pod(uid)
	return here && !p.Deleting() && !p.Finished()
}

// late tells that a pod is overdue, once, and stops its containers while the node is in danger, where that is wanted and the node
// has heard that it is being deleted.
func (x *Executor) late(ctx context.Context, d *departure, now unit.Micros, stays bool) {
	e := d.eviction
	if !d.overdue {
		x.change(e.Pod, func(d *departure) { d.overdue = true })
		x.report(Result{Eviction: e, Outcome: Overdue, Took: now - d.since})
	}
	if x.o.Hands != nil && x.o.Stops >= StopEvicted && d.mayStop && !stays && now >= d.helpAt && x.inDanger(now) {
		x.stop(ctx, e, 0, nil)
	}
}

// stop begins to end the pod's containers on the node, beside everything else: it lasts as long as they take.
func (x *Executor) stop(ctx context.Context, e evict.Eviction, grace time.Duration, cause error) {
	x.change(e.Pod, func(d *departure) { d.stopping = true })
	x.beside.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, grace+slack)
		defer cancel()
		r := ended{eviction: e, cause: cause, err: x.o.Hands.Stop(bounded, e.Pod, grace)}
		select {
		case x.ended <- r:
		case <-ctx.Done():
		}
	})
}

// stopped takes the result of a stop. One that the API server knows of is watched until it is gone; of another one the kubelet
// may start the containers again, so it is told what the stop has brought, and the pod is as it was.
func (x *Executor) stopped(r ended) {
	now := x.o.Clock()
	e := r.eviction
	switch {
	case r.err != nil && r.cause != nil:
		x.fail(e, errors.Join(r.cause, fmt.Errorf("%w: %w", ErrStop, r.err)))
		return
	case r.err != nil:
		x.report(Result{Eviction: e, Outcome: Failed, Err: fmt.Errorf("%w: %w", ErrStop, r.err)})
	case r.cause == nil:
		x.report(Result{Eviction: e, Outcome: Stopped})
	}
	x.change(e.Pod, func(d *departure) {
		d.stopping, d.helpAt = false, now+micros(helpAgain)
		if d.cause = r.cause; r.cause != nil {
			d.settleAt = now + x.o.settle()
		}
	})
	if r.err == nil {
		x.event(e, "ContainersStopped", true)
	}
}

// change edits a departure that is still one.
func (x *Executor) change(uid string, edit func(*departure)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d := x.leaving[uid]; d != nil {
		edit(d)
	}
}

// release compares now with what was before; nil when nothing is measured. Of a pod that is gone nothing is left, whatever the
// newest sample says.
func (x *Executor) release(d *departure, gone bool) *Release {
	if x.o.Measure == nil {
		return nil
	}
	r := &Release{Before: d.before, After: x.o.Measure(d.eviction.Pod)}
	if gone {
		r.After.CPU, r.After.Memory = unit.Measured[unit.MilliCPU]{}, unit.Measured[unit.Bytes]{}
	}
	return r
}
