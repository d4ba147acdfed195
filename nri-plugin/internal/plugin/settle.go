// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/model/node"
)

// unsettled are the pods whose cgroup may differ from what their containers need. A pod that is asked for ten times
// before its turn is settled once, by the background job or by a handler that cannot go on without it, whichever comes
// first. One pod is settled by one at a time: an older decision is never written over a newer one.
type unsettled struct {
	mu     sync.Mutex
	pods   map[string]struct{}      // by sandbox id
	busy   map[string]chan struct{} // closed when the one who is at it has done
	queued bool                     // the job is in the queue
}

// settleSoon brings a pod and its ancestors to what its containers need, in the background.
func (p *Plugin) settleSoon(sandbox string) {
	u := &p.unsettled
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pods == nil {
		u.pods, u.busy = map[string]struct{}{}, map[string]chan struct{}{}
	}
	u.pods[sandbox] = struct{}{}
	if !u.queued {
		u.queued = true
		p.jobs.add(p.settleAll)
	}
}

// settleAll works off what is unsettled.
func (p *Plugin) settleAll(ctx context.Context) {
	for _, sandbox := range p.unsettled.list() {
		p.settle(ctx, sandbox)
	}
}

func (u *unsettled) list() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.queued = false
	out := make([]string, 0, len(u.pods))
	for sandbox := range u.pods {
		out = append(out, sandbox)
	}
	return out
}

// claim takes a pod to be settled by the caller. Else others is what to wait for; nil when the pod is settled.
func (u *unsettled) claim(sandbox string) (mine bool, others <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if done, ok := u.busy[sandbox]; ok {
		return false, done
	}
	if _, ok := u.pods[sandbox]; !ok {
		return false, nil
	}
	delete(u.pods, sandbox)
	u.busy[sandbox] = make(chan struct{})
	return true, nil
}

func (u *unsettled) release(sandbox string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.busy[sandbox])
	delete(u.busy, sandbox)
}

// settled returns when all that has been asked for the pod so far is in force, at the latest after half the deadline.
func (p *Plugin) settled(ctx context.Context, sandbox string) {
	u := &p.unsettled
	u.mu.Lock()
	_, waiting := u.pods[sandbox]
	_, busy := u.busy[sandbox]
	u.mu.Unlock()
	if !waiting && !busy {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.deadline.Load())/2)
	defer cancel()
	p.settle(ctx, sandbox)
	if ctx.Err() != nil {
		p.problem(sandbox, "pod", "the pod's cgroup is still being written at start")
	}
}

// settle settles one pod, unless it is, or waits for whoever is at it.
func (p *Plugin) settle(ctx context.Context, sandbox string) {
	for ctx.Err() == nil {
		mine, others := p.unsettled.claim(sandbox)
		if mine {
			p.settleClaimed(ctx, sandbox)
			return
		}
		if others == nil {
			return
		}
		select {
		case <-others:
		case <-ctx.Done():
		}
	}
}

func (p *Plugin) settleClaimed(ctx context.Context, sandbox string) {
	defer p.unsettled.release(sandbox)
	pod, ok := p.reg.pod(sandbox)
	if !ok {
		return
	}
	v := p.views.Load()
	if !pod.stopped {
		old := pod.plan
		pod.plan = p.decidePod(v, sandbox, pod.p)
		p.apply(ctx, v, withUndo(v, old, pod.plan, pod.p.Base))
	}
	p.settleAbove(ctx, v, sandbox, &pod)
}

// settleAbove brings the pod's ancestors to the new sum when the pod's part in it has changed.
func (p *Plugin) settleAbove(ctx context.Context, v *node.View, sandbox string, pod *podEntry) {
	part := protection(pod)
	if pod.stopped {
		part.Min, part.Low = 0, 0
	}
	if part.Min == pod.minAbove && part.Low == pod.lowAbove {
		return
	}
	p.reg.changePod(sandbox, func(e *podEntry) { e.minAbove, e.lowAbove = part.Min, part.Low })
	p.settleAncestors(ctx, v)
}
