// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/memqos"
)

// reclaimFor bounds one round: what it does not reach in that time is asked for again, or not, by the memory loop.
const reclaimFor = 3 * time.Second

// reclaimer does beside the tick what the memory loop asks for: the kernel takes its time. One round runs at a time.
type reclaimer struct {
	do func(ctx context.Context, cgroup string, amount unit.Bytes) (unit.Bytes, error)

	rounds sync.WaitGroup
	mu     sync.Mutex
	busy   bool
	// got is what the last round has brought by container, and err what it failed in; both nil once they were taken.
	got map[string]unit.Bytes
	err error
}

// task is one cgroup to take from.
type task struct {
	container, cgroup string
	amount            unit.Bytes
}

// tasks finds the cgroups of what the memory loop asks for, in its order.
func tasks(todo []memqos.Reclaim, members []engine.Member) []task {
	if len(todo) == 0 {
		return nil
	}
	at := map[string]string{}
	for i := range members {
		for _, c := range members[i].Containers {
			at[c.ID] = c.Cgroup
		}
	}
	out := make([]task, 0, len(todo))
	for i := range todo {
		if dir := at[todo[i].Container]; dir != "" {
			out = append(out, task{todo[i].Container, dir, todo[i].Bytes})
		}
	}
	return out
}

// start begins a round. The caller has seen that none is under way.
func (r *reclaimer) start(ctx context.Context, todo []task) {
	if len(todo) == 0 {
		return
	}
	r.mu.Lock()
	r.busy = true
	r.mu.Unlock()
	r.rounds.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, reclaimFor)
		defer cancel()
		got := make(map[string]unit.Bytes, len(todo))
		var errs []error
		for _, t := range todo {
			if ctx.Err() != nil {
				break // what was not asked for brought nothing and says nothing
			}
			n, err := r.do(ctx, t.cgroup, t.amount)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			got[t.container] = n
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy, r.got, r.err = false, got, errors.Join(errs...)
	})
}

// take is what the last round has brought and failed in, once: got is nil where none has ended since. busy says that one is under way.
func (r *reclaimer) take() (got map[string]unit.Bytes, busy bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	got, err = maps.Clone(r.got), r.err
	r.got, r.err = nil, nil
	return got, r.busy, err
}

// reclaimed adds what the last round has brought to the facts. What it failed in is one tick's failure, which the next round ends, not the
// next tick.
func (a *Agent) reclaimed(f *decide.Facts) {
	var err error
	if f.Reclaimed, f.Reclaiming, err = a.reclaim.take(); f.Reclaimed != nil {
		a.trouble("reclaim memory", err)
	}
}

// wait returns when no round is under way.
func (r *reclaimer) wait() { r.rounds.Wait() }
