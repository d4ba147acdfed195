// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"sync"
	"time"
)

// A handler adds its jobs just before it replies: started at once they would take a processor from the reply and from the
// runtime, which goes on with the call for some milliseconds. So jobs wait until nothing was added for a lull, and longest at most. A pod's
// cgroup, asked for by RunPodSandbox and again by CreateContainer, is written once then, while runc prepares the container;
// whoever needs it earlier settles it himself (settled). Where an edge tells when the runtime is at work on a call and when it has
// answered (UnderWay), jobs wait for the answer: a creation takes about a lull.
const (
	lull    = 10 * time.Millisecond
	longest = 50 * time.Millisecond
)

// jobs runs what a handler leaves for later: ledger records, unit properties, widening of cpusets. Order is kept, and
// adding never waits: the queue is a slice, bounded by what the runtime can create.
type jobs struct {
	mu    sync.Mutex
	queue []func(context.Context)
	calls int // under way
	wake  chan struct{}
}

func newJobs() *jobs { return &jobs{wake: make(chan struct{}, 1)} }

func (j *jobs) add(f func(context.Context)) {
	j.mu.Lock()
	j.queue = append(j.queue, f)
	j.mu.Unlock()
	j.rouse()
}

// rouse has lull look again.
func (j *jobs) rouse() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// call counts a call that begins (1) or has been answered (-1).
func (j *jobs) call(n int) {
	j.mu.Lock()
	j.calls += n
	waiting := len(j.queue) > 0
	j.mu.Unlock()
	if waiting {
		j.rouse()
	}
}

// waiting reports that there is a job.
func (j *jobs) waiting() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.queue) > 0
}

// disturb reports that a call is under way.
func (j *jobs) disturb() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.calls > 0
}

func (j *jobs) take() []func(context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	q := j.queue
	j.queue = nil
	return q
}

// run works until ctx ends, at the pace that begin begins; each does one job, and idle is called when none is left.
func (j *jobs) run(ctx context.Context, begin func() pace, each func(context.Context, func(context.Context)), idle func()) {
	pause := time.NewTimer(longest)
	defer pause.Stop()
	for {
		p := begin()
		for _, f := range j.take() {
			p.step()
			each(ctx, f)
		}
		idle()
		if !j.lull(ctx, pause) {
			return
		}
	}
}

// lull returns when there is a job, nothing was added for a while, and no call is under way; it is false when ctx has ended.
func (j *jobs) lull(ctx context.Context, pause *time.Timer) bool {
	for !j.waiting() { // a wake that is left of jobs taken already opens no window: the next job's would be over before it came
		select {
		case <-ctx.Done():
			return false
		case <-j.wake:
		}
	}
	end := time.Now().Add(longest)
	for {
		left := time.Until(end)
		if !j.disturb() {
			left = min(lull, left)
		}
		pause.Reset(left)
		select {
		case <-ctx.Done():
			return false
		case <-pause.C:
			if !j.disturb() || time.Until(end) <= 0 { // a call may have begun as the time was up
				return true
			}
		case <-j.wake:
		}
	}
}

// UnderWay says that the runtime is at work on a call that makes a container of a pod. Jobs, which would take a processor from it,
// wait for answered, longest at most; then the pod's cgroup is brought to what the container needs at once, while the kubelet
// turns to its next call, which would have to wait for that.
func (g *Engine) UnderWay(sandbox string) (answered func()) {
	g.jobs.call(1)
	return sync.OnceFunc(func() {
		g.jobs.call(-1)
		g.crew.do(func() { g.shielded("sandbox "+sandbox, func() { g.settleOne(g.ctx(), sandbox) }) })
	})
}

// jobsLoop runs jobs until ctx ends.
func (g *Engine) jobsLoop(ctx context.Context) {
	g.jobs.run(ctx, g.pace, g.job, func() {
		g.pulses.jobs.rest()
		if g.o.Quiet != nil {
			g.giveWay()
			g.shielded("quiet moment", g.o.Quiet)
		}
	})
}

// job does one. What panics is left undone, and the jobs behind it are not.
func (g *Engine) job(ctx context.Context, f func(context.Context)) {
	defer g.caught("background job")
	g.beat(&g.pulses.jobs)
	f(ctx)
}

// drain runs what is left after the end, so that the ledger is complete.
func (g *Engine) drain() {
	for _, f := range g.jobs.take() {
		g.job(context.Background(), f)
	}
	g.pulses.jobs.rest()
}
