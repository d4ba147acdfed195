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

// resized is an engine with a pod of one container, both of the same quota, on a runtime that knows no event of a pod's resize.
func resized(t *testing.T, quota int64, list ...apply.Standing) (*Engine, *seen, Sandbox, Arrival) {
	t.Helper()
	pod := lsr("one")
	pod.Base.Quota = unit.Some(quota)
	sandbox := Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}
	c := workload.Container{ID: "c1", Name: "app", State: workload.StateRunning, Cgroup: pod.Cgroup + "/c1"}
	c.Base.Quota = unit.Some(quota)
	arrival := Arrival{ID: c.ID, Read: func(...*protocol.Applied) *workload.Container { one := c; return &one }}
	g, k := bursting(t, list...)
	g.Synchronize([]*workload.Pod{pod}, []Listed{{Sandbox: pod.ID, Arrival: arrival}})
	return g, k, sandbox, arrival
}

// A resize of which only the container's part is told moves the pod's base along. A kubelet that tells of the pod as well, which
// it does over CRI whatever the runtime knows, is believed: the container's part is not counted up once more.
func TestPodsBaseFollowsAResizeOnce(t *testing.T) {
	t.Parallel()
	type step struct {
		pod   bool
		quota int64
	}
	for name, c := range map[string]struct {
		kernel int64 // what the pod's cgroup has then, 0 for what is believed
		steps  []step
		want   int64
		listed bool // updates are found in the list of a runtime that could tell of the pod's
	}{
		"found in a list, it grows":      {0, []step{{false, 150000}}, 150000, true},
		"found in a list, it shrinks":    {0, []step{{false, 20000}}, 20000, true},
		"container alone, it grows":      {150000, []step{{false, 150000}}, 150000, false},
		"container alone, it shrinks":    {50000, []step{{false, 20000}}, 20000, false},
		"pod first, as it grows":         {0, []step{{true, 150000}, {false, 150000}}, 150000, false},
		"container first, as it shrinks": {0, []step{{true, 150000}, {false, 150000}, {false, 30000}, {true, 30000}}, 30000, false},
		"container first, not told yet":  {0, []step{{false, 30000}, {true, 30000}, {true, 100000}, {false, 100000}}, 100000, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _, sandbox, arrival := resized(t, 50000)
			if c.kernel > 0 {
				g.o.Kernel = &written{quota: c.kernel}
			}
			if g.o.UpdatesUntold = c.listed; c.listed {
				r := g.views.Load().Runtime
				r.Fields.UpdatePod = true
				g.views.SetRuntime(r)
			}
			for _, s := range c.steps {
				if to := (workload.Resources{Quota: unit.Some(s.quota)}); s.pod {
					g.UpdatePod(t.Context(), sandbox, to)
				} else {
					g.Update(t.Context(), sandbox, arrival, to, nil)
				}
			}
			if e, _ := g.reg.pod(sandbox.ID); e.p.Base.Quota != unit.Some(c.want) {
				t.Errorf("the pod's quota is believed to be %v, want %d", e.p.Base.Quota, c.want)
			}
		})
	}
}

// While one container's resize is decided, another one's comes, or the pod's: neither is lost, and none is counted twice.
func TestResizesAtOnce(t *testing.T) {
	t.Parallel()
	quota := func(n int64) workload.Resources { return workload.Resources{Quota: unit.Some(n)} }
	for name, c := range map[string]struct {
		kernel    int64 // what the pod's cgroup has then, 0 for what is believed
		meanwhile func(*Engine, Sandbox)
		want      int64
	}{
		"another container's": {65000, func(g *Engine, sandbox Sandbox) {
			g.Update(t.Context(), sandbox, Arrival{ID: "c2", Read: func(...*protocol.Applied) *workload.Container {
				return &workload.Container{ID: "c2", Name: "side", State: workload.StateRunning, Cgroup: "/kubepods/podone/c2", Base: quota(20000)}
			}}, quota(25000), nil)
		}, 65000},
		"the pod's": {0, func(g *Engine, sandbox Sandbox) { g.UpdatePod(t.Context(), sandbox, quota(60000)) }, 60000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _, sandbox, arrival := resized(t, 50000)
			if c.kernel > 0 {
				g.o.Kernel = &written{quota: c.kernel}
			}
			g.o.Join = func(ours, _ plan.Plan) plan.Plan {
				c.meanwhile(g, sandbox)
				return ours
			}
			g.Update(t.Context(), sandbox, arrival, quota(60000), plan.Plan{{Knob: plan.CPUShares, Hook: "agent"}})
			if e, _ := g.reg.pod(sandbox.ID); e.p.Base.Quota != unit.Some(c.want) {
				t.Errorf("the pod's quota is believed to be %v, want %d", e.p.Base.Quota, c.want)
			}
		})
	}
}

// orderly is a kernel that notes whether a pod was being settled, by somebody else, when a burst fell.
type orderly struct {
	*seen
	g       *Engine
	sandbox string
	base    *unit.Opt // the pod's, as believed at that time
	busy    bool
}

// Apply implements Kernel.
func (k *orderly) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if e, ok := k.g.reg.pod(k.sandbox); ok && p.Get(plan.CPUBurst) != nil {
		base := e.p.Base.Quota
		k.base = &base
		k.g.unsettled.mu.Lock()
		_, k.busy = k.g.unsettled.busy[k.sandbox]
		k.g.unsettled.mu.Unlock()
	}
	return k.seen.Apply(ctx, p, gen)
}

// A pod's burst falls when nobody writes an older, larger one any more: the new base is known, and who is at the pod has done.
func TestBurstFallsAfterOlderDecisions(t *testing.T) {
	t.Parallel()
	for name, resize := range map[string]func(*Engine, Sandbox, Arrival, workload.Resources){
		"the pod's": func(g *Engine, sandbox Sandbox, _ Arrival, to workload.Resources) {
			g.UpdatePod(t.Context(), sandbox, to)
		},
		"the container's": func(g *Engine, sandbox Sandbox, arrival Arrival, to workload.Resources) {
			g.Update(t.Context(), sandbox, arrival, to, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			burst := leftOf(lsr("one").Target(), plan.CPUBurst, 50000, 0, protocol.FeatureBurst.String())
			g, seen, sandbox, arrival := resized(t, 50000, burst)
			k := &orderly{seen: seen, g: g, sandbox: sandbox.ID}
			g.o.Kernel = k
			g.settleSoon(sandbox.ID)
			if mine, _ := g.unsettled.claim(sandbox.ID); !mine {
				t.Fatal("the pod is settled already")
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				resize(g, sandbox, arrival, workload.Resources{Quota: unit.Some(20000)})
			}()
			for e, _ := g.reg.pod(sandbox.ID); e.p.Base.Quota != unit.Some(20000); e, _ = g.reg.pod(sandbox.ID) {
				time.Sleep(time.Millisecond) // the test's own limit ends it
			}
			time.Sleep(20 * time.Millisecond) // in which one that does not wait writes
			g.unsettled.release(sandbox.ID)
			<-done
			if k.base == nil || *k.base != unit.Some(20000) || k.busy {
				t.Errorf("the burst fell with a base of %v, while somebody was at the pod: %t", k.base, k.busy)
			}
		})
	}
}

// unlike is a kernel that holds other values than any plan.
type unlike struct{ *seen }

// Verify implements Kernel.
func (unlike) Verify(p plan.Plan) (out []apply.Mismatch) {
	for i := range p {
		out = append(out, apply.Mismatch{Setting: p[i], Got: plan.Int(1 << 40)})
	}
	return out
}

// A container's smaller quota takes the pod's burst away. Who settles the pod before the kubelet tells of its new quota would raise it to what
// the old one holds, and UpdatePod, which comes next, would have to wait for him and take it away again: nobody does before the first check,
// nor while the kubelet has told of the pod's weight alone, which it does first.
func TestPodsBurstStaysLowUntilThePodIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		quota int64
		low   bool
	}{"smaller": {20000, true}, "larger": {90000, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, k, sandbox, arrival := resized(t, 60000, leftOf(lsr("one").Target(), plan.CPUBurst, 50000, 0, protocol.FeatureBurst.String()))
				due := func() bool {
					g.unsettled.mu.Lock()
					defer g.unsettled.mu.Unlock()
					_, is := g.unsettled.pods[sandbox.ID]
					return is
				}
				g.settleAll(t.Context()) // what the list has asked for
				g.reg.changePod(sandbox.ID, func(e *podEntry) { e.told = true })
				g.Update(t.Context(), sandbox, arrival, workload.Resources{Quota: unit.Some(c.quota)}, nil)
				defer g.crew.dismiss()
				g.Updated(t.Context(), arrival.ID)
				if low := k.has(lsr("one").Target(), plan.CPUBurst, 0); low != c.low || due() == c.low {
					t.Errorf("the burst falls: %t, want %t; the pod is to be settled at once: %t", low, c.low, due())
				}
				time.Sleep(podChecks[0])
				synctest.Wait()
				if !due() {
					t.Error("the pod is not to be settled at the first check")
				}
				if e, _ := g.reg.pod(sandbox.ID); e.lowUntil.IsZero() == c.low {
					t.Errorf("the kubelet, which tells of this pod, is waited for until %v", e.lowUntil)
				}
				g.UpdatePod(t.Context(), sandbox, workload.Resources{Quota: unit.Some(60000), Shares: unit.Some(512)})
				if e, _ := g.reg.pod(sandbox.ID); e.lowUntil.IsZero() == c.low {
					t.Errorf("with the pod's weight told, and its quota as it was, the kubelet is waited for until %v", e.lowUntil)
				}
				g.UpdatePod(t.Context(), sandbox, workload.Resources{Quota: unit.Some(c.quota), Shares: unit.Some(512)})
				if e, _ := g.reg.pod(sandbox.ID); !e.lowUntil.IsZero() {
					t.Errorf("with the pod's quota told the kubelet is waited for until %v", e.lowUntil)
				}
				if last := podChecks[len(podChecks)-1]; last <= lowFor {
					t.Errorf("the last check, after %s, does not give a burst back that stays away for %s", last, lowFor)
				}
			})
		})
	}
}

// A pod's cgroup is looked at again at each of the moments after a resize, and no longer once the engine has ended.
func TestPodChecks(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g, _, sandbox, _ := resized(t, 60000)
			life, end := context.WithCancel(t.Context())
			defer end()
			g.life.Store(&life)
			g.settleAll(t.Context())
			begun := time.Now()
			g.checkPodLater(sandbox.ID)
			for i, d := range podChecks {
				if ends && i == 1 {
					end()
				}
				for _, at := range []time.Duration{d - 1, d} {
					time.Sleep(at - time.Since(begun))
					synctest.Wait()
					mine, _ := g.unsettled.claim(sandbox.ID)
					if want := at == d && (!ends || i == 0); mine != want {
						t.Errorf("%s after a resize (ended: %t) the pod is to be settled: %t", at, ends, mine)
					}
					if mine {
						g.unsettled.release(sandbox.ID)
					}
				}
			}
		})
	}
}

// A pod whose quota holds what its containers need by now, or which has told of it before, waits for nothing: its burst comes back with the first
// check.
func TestPodsBurstComesBackWithAQuotaThatStays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		container unit.Opt // its quota after the resize
		waits     bool
	}{
		"as large as the pod's": {unit.Some(60000), false}, "smaller": {unit.Some(20000), true}, "none": {unit.Some(-1), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _, sandbox, arrival := resized(t, 60000)
			g.reg.changeContainer(arrival.ID, func(e *entry) {
				one := *e.c
				one.Base.Quota = c.container
				e.c = &one
			})
			g.reg.changePod(sandbox.ID, func(e *podEntry) { e.lowUntil = g.o.Now().Add(lowFor) })
			g.UpdatePod(t.Context(), sandbox, workload.Resources{Quota: unit.Some(60000), Shares: unit.Some(512)})
			if e, _ := g.reg.pod(sandbox.ID); e.lowUntil.IsZero() == c.waits {
				t.Errorf("the kubelet is waited for until %v", e.lowUntil)
			}
		})
	}
}

// slowly is a kernel that takes its time over a pod's burst.
type slowly struct {
	*seen
	pod plan.Target
	end chan struct{}
}

// Apply implements Kernel.
func (k slowly) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	if p.Find(k.pod, plan.CPUBurst, "") != nil {
		<-k.end
	}
	return k.seen.Apply(ctx, p, gen)
}

// The reply to an update does not wait for the pod's burst to fall, which the runtime's own work leaves time for. What the kubelet waits for
// before it writes the pod's quota does: the end of the update, and what it tells of the pod. Over a way on which the kubelet hears first,
// the reply waits.
func TestKubeletHearsWhenThePodsBurstHasFallen(t *testing.T) {
	t.Parallel()
	smaller := workload.Resources{Quota: unit.Some(20000)}
	for name, c := range map[string]struct {
		awaited bool
		hear    func(context.Context, *Engine, Sandbox, Arrival)
	}{
		"of the update": {true, func(ctx context.Context, g *Engine, _ Sandbox, ctr Arrival) { g.Updated(ctx, ctr.ID) }},
		"of the pod":    {true, func(ctx context.Context, g *Engine, sandbox Sandbox, _ Arrival) { g.UpdatePod(ctx, sandbox, smaller) }},
		"before": {false, func(ctx context.Context, g *Engine, sandbox Sandbox, ctr Arrival) {
			g.Update(ctx, sandbox, ctr, smaller, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				target := lsr("one").Target()
				g, k, sandbox, arrival := resized(t, 60000, leftOf(target, plan.CPUBurst, 50000, 0, protocol.FeatureBurst.String()))
				defer g.crew.dismiss()
				g.settleAll(t.Context()) // what the list has asked for
				g.reg.changePod(sandbox.ID, func(e *podEntry) { e.told = true })
				end := make(chan struct{})
				g.o.Kernel, g.o.UpdatesAwaited = slowly{k, target, end}, c.awaited
				if c.awaited {
					g.Update(t.Context(), sandbox, arrival, smaller, nil)
				}
				heard := make(chan struct{})
				go func() {
					defer close(heard)
					c.hear(t.Context(), g, sandbox, arrival)
				}()
				time.Sleep(2 * rest) // what is left behind the reply has begun
				synctest.Wait()
				select {
				case <-heard:
					t.Error("the kubelet has heard while the burst stands")
				default:
				}
				close(end)
				<-heard
				if !k.has(target, plan.CPUBurst, 0) {
					t.Error("the burst stands")
				}
			})
		})
	}
}

// Who is at a pod, or at its container, for longer than a handler may wait does not keep its burst from falling before the reply.
func TestPodsBurstFallsBesideWhoDoesNotEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		target := lsr("one").Target()
		g, k, sandbox, arrival := resized(t, 60000, leftOf(target, plan.CPUBurst, 50000, 0, protocol.FeatureBurst.String()))
		defer g.crew.dismiss()
		g.settleAll(t.Context()) // what the list has asked for
		g.reg.changePod(sandbox.ID, func(e *podEntry) { e.told = true })
		g.o.UpdatesAwaited = true
		if !g.unsettled.take(sandbox.ID) {
			t.Fatal("somebody is at the pod")
		}
		defer g.unsettled.release(sandbox.ID)
		g.writers.enter(arrival.ID)
		defer g.writers.leave(arrival.ID)
		begun := time.Now()
		g.Update(t.Context(), sandbox, arrival, workload.Resources{Quota: unit.Some(20000)}, nil)
		if took, limit := time.Since(begun), time.Duration(g.deadline.Load()); took >= limit || !k.has(target, plan.CPUBurst, 0) {
			t.Errorf("after %s of %s the burst has fallen: %t", took, limit, k.has(target, plan.CPUBurst, 0))
		}
	})
}

// A burst that is not ours is not lowered, whatever its quota becomes: the kernel refuses what does not fit, and its owner hears of it.
func TestBurstOfSomebodyElse(t *testing.T) {
	t.Parallel()
	g, k, sandbox, arrival := resized(t, 60000)
	g.Update(t.Context(), sandbox, arrival, workload.Resources{Quota: unit.Some(20000)}, nil)
	if s := k.asked.Get(plan.CPUBurst); s != nil {
		t.Errorf("asked for %v", s)
	}
}

// Of two updates at once each lowers the burst to what fits both: either's quota may be written next.
func TestBurstFitsBothUpdates(t *testing.T) {
	t.Parallel()
	g, k, _, arrival := resized(t, 100000)
	e, _ := g.reg.container(arrival.ID)
	burst := func(n int64) plan.Plan {
		return plan.Plan{{Target: e.c.Target(lsr("one")), Knob: plan.CPUBurst, Value: plan.Int(n)}}
	}
	g.o.Kernel = remembering{k, t, 100000}
	for _, quotas := range [][2]int64{{50000, 80000}, {80000, 50000}} {
		k.asked = nil
		g.reg.changeContainer(arrival.ID, func(now *entry) { now.plan = burst(quotas[1]) })
		g.lowerOwn(t.Context(), g.views.Load(), arrival.ID, burst(100000)[0], burst(quotas[0]), nil)
		if s := k.asked.Get(plan.CPUBurst); s == nil || s.Value != plan.Int(50000) {
			t.Errorf("%d, and %d meanwhile: asked for %v", quotas[0], quotas[1], k.asked)
		}
	}
}

// An update that lowers nothing waits for nobody: the CPU manager's, a limit of memory, a larger quota.
func TestUpdateThatLowersNothing(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]workload.Resources{
		"CPUs": {CPUs: "0-1"}, "memory": {MemoryLimit: unit.Some(1 << 30)}, "a larger quota": {Quota: unit.Some(90000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, _, sandbox, arrival := resized(t, 60000)
				defer g.crew.dismiss()
				g.reg.changePod(sandbox.ID, func(e *podEntry) { e.told = true })
				g.writers.enter(arrival.ID)
				defer g.writers.leave(arrival.ID)
				begun := time.Now()
				if g.Update(t.Context(), sandbox, arrival, asked, nil); time.Since(begun) > 0 {
					t.Errorf("answered after %s", time.Since(begun))
				}
			})
		})
	}
}

// Nor does he keep it from falling before the kubelet, which tells of the pod, goes on.
func TestPodsOwnResizeBesideWhoDoesNotEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		target := lsr("one").Target()
		g, k, sandbox, _ := resized(t, 60000, leftOf(target, plan.CPUBurst, 50000, 0, protocol.FeatureBurst.String()))
		defer g.crew.dismiss()
		if !g.unsettled.take(sandbox.ID) {
			t.Fatal("somebody is at the pod")
		}
		defer g.unsettled.release(sandbox.ID)
		begun := time.Now()
		g.UpdatePod(t.Context(), sandbox, workload.Resources{Quota: unit.Some(20000)})
		if took, limit := time.Since(begun), time.Duration(g.deadline.Load()); took >= limit || !k.has(target, plan.CPUBurst, 0) {
			t.Errorf("after %s of %s the burst has fallen: %t", took, limit, k.has(target, plan.CPUBurst, 0))
		}
	})
}

// A pod that gets its first burst while the kubelet tells of a smaller quota loses it before the answer.
func TestFirstBurstDuringAResize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, k, sandbox, _ := resized(t, 60000)
		defer g.crew.dismiss()
		g.settleAll(t.Context()) // what the list has asked for
		target := lsr("one").Target()
		if !g.unsettled.take(sandbox.ID) {
			t.Fatal("somebody is at the pod")
		}
		time.AfterFunc(time.Millisecond, func() { // as a settle under way
			g.reg.changePod(sandbox.ID, func(e *podEntry) {
				e.plan = append(e.plan, plan.Setting{Target: target, Knob: plan.CPUBurst, Value: plan.Int(60000)})
			})
			g.unsettled.release(sandbox.ID)
		})
		g.UpdatePod(t.Context(), sandbox, workload.Resources{Quota: unit.Some(20000)})
		if !k.has(target, plan.CPUBurst, 0) {
			t.Errorf("the burst stands; asked for: %v", k.asked)
		}
	})
}

// remembering is a kernel that has written a burst and is not to be asked for it.
type remembering struct {
	*seen
	t     *testing.T
	burst int64
}

// Last implements Kernel.
func (k remembering) Last(id plan.ID) (plan.Value, bool) {
	return plan.Int(k.burst), id.Knob == plan.CPUBurst
}

// Verify implements Kernel.
func (k remembering) Verify(p plan.Plan) []apply.Mismatch {
	k.t.Errorf("read back, which a kubelet waits for: %s", p)
	return nil
}

// A pod's burst makes way for a quota that cannot hold it, and for one of which that is not known. What was written last is known without a
// look at the kernel, where it is not what is planned as well.
func TestBurstStaysUnderAQuotaThatHoldsIt(t *testing.T) {
	t.Parallel()
	target := lsr("one").Target()
	asked := func(_ *testing.T, k *seen) Kernel { return k } // has what is planned
	another := func(_ *testing.T, k *seen) Kernel { return unlike{k} }
	last := func(burst int64) func(*testing.T, *seen) Kernel {
		return func(t *testing.T, k *seen) Kernel { return remembering{k, t, burst} }
	}
	for name, c := range map[string]struct {
		quota  unit.Opt
		kernel func(*testing.T, *seen) Kernel
		falls  bool
	}{
		"as large":                    {unit.Some(50000), asked, false},
		"unlimited":                   {unit.Some(-1), asked, false},
		"smaller":                     {unit.Some(49999), asked, true},
		"not told":                    {unit.Opt{}, asked, true},
		"another one stands":          {unit.Some(60000), another, true},
		"as large as remembered":      {unit.Some(50000), last(50000), false},
		"unlimited, remembered":       {unit.Some(-1), last(50000), false},
		"smaller than remembered":     {unit.Some(49999), last(50000), true},
		"not told, remembered":        {unit.Opt{}, last(50000), true},
		"lowered already":             {unit.Some(20000), last(0), false},
		"an older, larger remembered": {unit.Some(60000), last(70000), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, k, sandbox, _ := resized(t, 60000, leftOf(target, plan.CPUBurst, 50000, 0, protocol.FeatureBurst.String()))
			g.o.Kernel = c.kernel(t, k)
			g.UpdatePod(t.Context(), sandbox, workload.Resources{Quota: c.quota})
			if falls := k.has(target, plan.CPUBurst, 0); falls != c.falls {
				t.Errorf("the burst falls: %t, want %t; asked of the kernel:\n%s", falls, c.falls, k.asked)
			}
		})
	}
}
