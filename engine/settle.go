// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

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
func (g *Engine) settleSoon(sandbox string) {
	u := &g.unsettled
	u.ask(sandbox)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.queued {
		u.queued = true
		g.jobs.add(g.settleAll)
	}
}

// settleAll works off what is unsettled.
func (g *Engine) settleAll(ctx context.Context) {
	p := g.pace()
	for _, sandbox := range g.unsettled.list() {
		p.step()
		g.beat(&g.pulses.jobs)
		g.shielded("sandbox "+sandbox, func() { g.settleOne(ctx, sandbox) })
	}
}

// settleOne settles a pod and keeps its quota at hand.
func (g *Engine) settleOne(ctx context.Context, sandbox string) {
	g.settle(ctx, sandbox)
	if pod, ok := g.reg.pod(sandbox); ok && !pod.stopped {
		g.o.Live.hold(pod.p.Cgroup)
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

// ask is settleSoon for who settles the pod himself.
func (u *unsettled) ask(sandbox string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pods == nil {
		u.pods, u.busy = map[string]struct{}{}, map[string]chan struct{}{}
	}
	u.pods[sandbox] = struct{}{}
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

// take keeps others from a pod until release, whether or not it is to be settled; it stays so. It is false while somebody is at it.
func (u *unsettled) take(sandbox string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, busy := u.busy[sandbox]; busy {
		return false
	}
	if u.busy == nil {
		u.pods, u.busy = map[string]struct{}{}, map[string]chan struct{}{}
	}
	u.busy[sandbox] = make(chan struct{})
	return true
}

// quiet waits for whoever is settling the pod, whose decision may be older than what the caller has changed, until at most: then, or when
// ctx has ended, it is false.
func (u *unsettled) quiet(ctx context.Context, sandbox string, until time.Time) bool {
	u.mu.Lock()
	done, busy := u.busy[sandbox]
	u.mu.Unlock()
	return !busy || awaited(ctx, done, until)
}

// awaited waits for done, until at most.
func awaited(ctx context.Context, done <-chan struct{}, until time.Time) bool {
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-limit.C:
	}
	return false
}

func (u *unsettled) release(sandbox string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.busy[sandbox])
	delete(u.busy, sandbox)
}

// settled returns when all that has been asked for the pod so far is in force, at the latest at until: then it is false.
func (g *Engine) settled(ctx context.Context, sandbox string, until time.Time) bool {
	u := &g.unsettled
	u.mu.Lock()
	_, waiting := u.pods[sandbox]
	_, busy := u.busy[sandbox]
	u.mu.Unlock()
	if !waiting && !busy {
		return true
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	g.settle(ctx, sandbox)
	if ctx.Err() != nil {
		g.problemOf(sandbox, g.podName(sandbox), "pod", "the pod's cgroup is still being written at start")
		return false
	}
	return true
}

// settle settles one pod, unless it is, or waits for whoever is at it.
func (g *Engine) settle(ctx context.Context, sandbox string) {
	for ctx.Err() == nil {
		mine, others := g.unsettled.claim(sandbox)
		if mine {
			g.settleClaimed(ctx, sandbox)
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

// settleNow is a repair of one pod, whether or not it was asked for: how many values were written, and whether its part in what its
// ancestors carry has changed.
func (g *Engine) settleNow(ctx context.Context, sandbox string) (n int, above bool) {
	g.unsettled.ask(sandbox)
	for ctx.Err() == nil {
		mine, others := g.unsettled.claim(sandbox)
		switch {
		case mine:
			defer g.unsettled.release(sandbox)
			return g.settlePod(ctx, g.views.Load(), sandbox)
		case others == nil:
			g.unsettled.ask(sandbox) // somebody else has settled it, as it was before we came perhaps
			continue
		}
		select {
		case <-others:
		case <-ctx.Done():
		}
	}
	return 0, false
}

func (g *Engine) settleClaimed(ctx context.Context, sandbox string) {
	defer g.unsettled.release(sandbox)
	v := g.views.Load()
	if _, above := g.settlePod(ctx, v, sandbox); above {
		g.settleAncestors(ctx, v)
	}
}

// settlePod brings a pod that the caller has claimed to what its containers need.
func (g *Engine) settlePod(ctx context.Context, v *node.View, sandbox string) (n int, above bool) {
	g.measure(sandbox)
	pod, ok := g.reg.pod(sandbox)
	if !ok {
		return 0, false
	}
	if !pod.stopped {
		next := g.decidePod(v, &pod)
		if pl := direct(withPodUndo(v, &pod, next)); len(pl) > 0 {
			results := g.write(ctx, v, pl)
			n = g.count(results)
			g.keepUndone(&pod, next, results)
		}
		pod.plan = next
	}
	return n, g.carries(sandbox, &pod)
}

// carries keeps the pod's part in what its ancestors carry, and reports whether it is another than before. That of a pod that has ended
// may have got into a sum after pod was read.
func (g *Engine) carries(sandbox string, pod *podEntry) bool {
	part := protection(pod)
	late := false
	if pod.stopped {
		late = part.Min > 0 || part.Low > 0
		part.Min, part.Low = 0, 0
	}
	if !late && part.Min == pod.minAbove && part.Low == pod.lowAbove {
		return false
	}
	g.reg.changePod(sandbox, func(e *podEntry) { e.minAbove, e.lowAbove = part.Min, part.Low })
	return true
}
