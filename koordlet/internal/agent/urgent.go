// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/model/unit"
)

const (
	// urgentPause lies between two steps that triggers ask for: each of a hundred pods may call twice a second, and what one step decides
	// for one of them holds for all.
	urgentPause = 100 * unit.Millisecond
	// doubtTicks is for how many ticks the pods' pressure is read in each, after a trigger was dismissed: two readings tell what of
	// it the pod's own limit does not explain.
	doubtTicks = 3
)

// urgency is who waits for CPUs and has not been answered yet. Nobody's call is lost to another's.
type urgency struct {
	// call has an element while somebody waits.
	call chan struct{}

	mu      sync.Mutex
	waiting map[string]unit.Micros // pods by UID, and when each has called first

	// answered is when the last step was; it belongs to who takes.
	answered unit.Micros
}

func newUrgency() *urgency {
	return &urgency{call: make(chan struct{}, 1), waiting: map[string]unit.Micros{}}
}

// ask notes a pod.
func (u *urgency) ask(uid string, now unit.Micros) {
	u.mu.Lock()
	if _, already := u.waiting[uid]; !already {
		u.waiting[uid] = now
	}
	u.mu.Unlock()
	u.wake()
}

// take is who waits, in order, and since when; they do not any more then.
func (u *urgency) take() (called []string, since map[string]unit.Micros) {
	u.mu.Lock()
	defer u.mu.Unlock()
	since, u.waiting = u.waiting, map[string]unit.Micros{}
	return slices.Sorted(maps.Keys(since)), since
}

// wait is how long the next step has to wait.
func (u *urgency) wait(now unit.Micros) unit.Micros {
	if since := now - u.answered; since >= 0 {
		return max(urgentPause-since, 0)
	}
	return 0 // another clock
}

// putOff leaves pods waiting, who have called at since, to be asked again when they have done so for a while.
func (u *urgency) putOff(late []string, since map[string]unit.Micros, now unit.Micros) {
	if len(late) == 0 {
		return
	}
	wait := counted
	u.mu.Lock()
	for _, uid := range late {
		u.waiting[uid] = since[uid]
		wait = min(wait, counted-(now-since[uid]))
	}
	u.mu.Unlock()
	time.AfterFunc(time.Duration(wait)*time.Microsecond, u.wake)
}

// wake has those who wait asked.
func (u *urgency) wake() {
	select {
	case u.call <- struct{}{}:
	default:
	}
}

// answer decides for those who wait, but for pods whose own limit makes them.
func (a *Agent) answer(ctx context.Context) {
	now := a.o.Now()
	members, _ := a.o.Engine.Roster()
	called, since := a.urgent.take()
	h := hearing{
		state: &a.state, window: a.o.Window, interval: unit.Micros(a.o.Interval.Microseconds()), trigger: a.o.Pressure.trigger,
		stopped: a.o.Scanner.Stopped,
	}
	waiting, late := h.sort(called, since, members, now)
	a.urgent.putOff(late, since, now)
	if len(waiting)+len(late) < len(called) {
		a.doubt = doubtTicks
	}
	if len(waiting) == 0 {
		return
	}
	a.urgent.answered = now
	a.tick(ctx, waiting, first(waiting, since, now))
}

// first is when the first of those who wait has called.
func first(waiting []string, since map[string]unit.Micros, now unit.Micros) unit.Micros {
	for _, uid := range waiting {
		now = min(now, since[uid])
	}
	return now
}
