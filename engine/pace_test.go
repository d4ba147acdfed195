// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Work in the background does not begin while somebody serves a call, unless the call does not end: what is left behind a reply, and each stint of a
// loop.
func TestWorkGivesWay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, until time.Duration // of the call
		behind      time.Duration // when work behind a reply begins
		steps       [3]time.Duration
	}{
		"nothing is served":         {time.Hour, time.Hour, rest, [3]time.Duration{0, 0, stint + rest}},
		"a call that ends":          {0, rest + rest/2, 2 * rest, [3]time.Duration{2 * rest, 2 * rest, 3*rest + stint}},
		"a call that does not end":  {0, time.Hour, rest + yields*rest, [3]time.Duration{yields * rest, yields * rest, yields*rest + stint + rest + yields*rest}},
		"a call in a stint's midst": {1, 2, rest, [3]time.Duration{0, 0, stint + rest}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &Engine{}
				defer g.crew.dismiss()
				defer g.watch.end()
				start := time.Now()
				serve := time.AfterFunc(tc.from, func() {
					call := g.watch.begin(2 * time.Hour)
					time.AfterFunc(tc.until-tc.from, func() {
						call.leave(finished)
						g.watch.finish(call)
					})
				})
				defer serve.Stop()
				synctest.Wait()
				var began time.Duration
				g.behind(func() { began = time.Since(start) })
				var steps [3]time.Duration
				p := g.pace()
				for i := range steps {
					if i == len(steps)-1 {
						time.Sleep(stint)
					}
					p.step()
					steps[i] = time.Since(start)
				}
				time.Sleep(10 * rest)
				synctest.Wait()
				if began != tc.behind || steps != tc.steps {
					t.Errorf("work behind a reply after %s, want %s; steps after %v, want %v", began, tc.behind, steps, tc.steps)
				}
			})
		})
	}
}

// noting is a kernel that tells when a pod's burst is written.
type noting struct {
	*seen
	pod  plan.Target
	note func()
}

// Apply implements Kernel.
func (k noting) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if p.Find(k.pod, plan.CPUBurst, "") != nil {
		k.note()
	}
	return k.seen.Apply(ctx, p, gen)
}

// So do they who leave something behind a reply, and the quiet moment after the jobs, in which garbage is collected.
func TestWhoGivesWay(t *testing.T) {
	t.Parallel()
	target := lsr("one").Target()
	for name, act := range map[string]func(ctx context.Context, g *Engine, k *seen, sandbox Sandbox, ctr Arrival, note func()){
		"a pod is read behind the reply": func(_ context.Context, g *Engine, _ *seen, _ Sandbox, _ Arrival, note func()) {
			g.RunPodLater(Sandbox{ID: "late", Read: func() *workload.Pod { note(); return lsr("late") }})
		},
		"a pod's burst falls behind the reply": func(ctx context.Context, g *Engine, k *seen, sandbox Sandbox, ctr Arrival, note func()) {
			g.o.Kernel, g.o.UpdatesAwaited = noting{k, target, note}, true
			g.Update(ctx, sandbox, ctr, workload.Resources{Quota: unit.Some(20000)}, nil)
		},
		"a quiet moment": func(ctx context.Context, g *Engine, _ *seen, _ Sandbox, _ Arrival, note func()) {
			g.o.Quiet = note
			go g.jobsLoop(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var began [2]time.Duration
			for served := range began {
				synctest.Test(t, func(t *testing.T) {
					ctx, end := context.WithCancel(t.Context())
					g, k, sandbox, ctr := resized(t, 60000, leftOf(target, plan.CPUBurst, 50000, 0, protocol.FeatureBurst.String()))
					defer g.watch.end()
					defer g.crew.dismiss()
					g.drain() // what the list has left
					g.settleAll(ctx)
					g.reg.changePod(sandbox.ID, func(e *podEntry) { e.told = true })
					if served > 0 {
						call := g.watch.begin(2 * time.Hour)
						defer g.watch.finish(call)
						defer call.leave(finished)
					}
					start := time.Now()
					began[served] = -1
					act(ctx, g, k, sandbox, ctr, func() { began[served] = time.Since(start) })
					time.Sleep(10 * rest)
					end()
					synctest.Wait()
				})
			}
			if began[0] < 0 || began[1]-began[0] != yields*rest {
				t.Errorf("begins after %s, and after %s while a call is served", began[0], began[1])
			}
		})
	}
}
