// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package evict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
)

// With the need, or with everything switched off, the queue ends: who was not asked for stays, is told of, and may be chosen again.
func TestQueueEndsWithTheNeed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]*evict.Output{
		"no need": step(evict.Enough), "switched off": {}, "another band's need": {Decisions: []evict.Decision{{Band: protocol.PriorityMid, Rest: evict.Needed}}},
	} {
		with(t, func(_ *node, o *Options) { o.Burst, o.Every = 1, 5*time.Second }, func(n *node, x *Executor) {
			x.Follow(step(evict.Needed, calm("a"), calm("b"), calm("c")))
			want(t, n.take(), "evict a a-uid 20s", "= accepted a", "event node-001 Evicted a a-uid 0s")
			if h := x.Held(); len(h) != 2 || h["b-uid"] != evict.ByTurn || h["c-uid"] != evict.ByTurn || len(x.Leaving()) != 3 {
				t.Errorf("%s: held %v, leaving %v", name, h, x.Leaving())
			}
			follow(x, 6*time.Second, evict.Needed)
			want(t, n.take(), "evict b b-uid 20s", "= accepted b", "event node-001 Evicted b b-uid 0s")
			x.Follow(end)
			want(t, n.take(), "= dropped c")
			if l := x.Leaving(); len(l) != 2 || l["a-uid"] == 0 || l["b-uid"] == 0 || len(x.Held()) != 0 {
				t.Errorf("%s: leaving %v, held %v", name, l, x.Held())
			}
			pass(10 * time.Second)
			want(t, n.take())
			x.Follow(step(evict.Needed, calm("c")))
			want(t, n.take(), "evict c c-uid 20s", "= accepted c", "event node-001 Evicted c c-uid 0s")
		})
	}
}

// What is not measured sends nobody, but in danger, and drops nobody for a while: others count on who is chosen, and would for hours.
func TestQueueWaitsForTheMeasurement(t *testing.T) {
	t.Parallel()
	with(t, func(_ *node, o *Options) { o.Burst, o.Every = 1, 5*time.Second }, func(n *node, x *Executor) {
		x.Follow(step(evict.Needed, calm("a"), calm("b")))
		n.take()
		follow(x, 20*time.Second, evict.Unknown)
		want(t, n.take())
		other := calm("c")
		other.Feature = evict.CPUEvict
		x.Follow(&evict.Output{Evictions: []evict.Eviction{other}, Decisions: []evict.Decision{{Rest: evict.Unknown}, {Feature: evict.CPUEvict, Rest: evict.Needed, CPU: evict.Demand[unit.MilliCPU]{Left: 1}}}})
		want(t, n.take(), "evict c c-uid 20s", "= accepted c", "event node-001 Evicted c c-uid 0s")
		follow(x, 6*time.Second, evict.Needed)
		if got := n.take(); !strings.HasPrefix(got, "evict b b-uid 20s") {
			t.Errorf("%q", got)
		}
	})
	with(t, func(_ *node, o *Options) { o.Burst, o.Every = 1, time.Hour }, func(n *node, x *Executor) {
		x.Follow(step(evict.Needed, calm("a"), calm("b")))
		n.put(pod("b", ""), pod("c", ""))
		follow(x, time.Minute, evict.Needed)
		x.Follow(step(evict.Needed)) // it waits for long, and is needed
		n.take()
		pass(unknownFor - time.Second)
		x.Follow(step(evict.Unknown))
		want(t, n.take())
		pass(time.Second)
		x.Follow(step(evict.Unknown))
		want(t, n.take(), "= dropped b")
		if l, h := x.Leaving(), x.Held(); len(l)+len(h) != 0 {
			t.Errorf("counted on: %v, held %v", l, h)
		}
	})
	// Where a step is to come once a minute one without a measurement drops nobody either.
	with(t, func(_ *node, o *Options) { o.Interval, o.Burst, o.Every = time.Minute, 1, time.Hour }, func(n *node, x *Executor) {
		x.Follow(step(evict.Needed, calm("a"), calm("b")))
		n.put(pod("b", ""), pod("c", ""))
		pass(time.Minute)
		n.take()
		x.Follow(step(evict.Unknown))
		want(t, n.take())
		if x.Held()["b-uid"] != evict.ByTurn {
			t.Errorf("held %v", x.Held())
		}
		pass(2 * time.Minute)
		x.Follow(step(evict.Unknown))
		want(t, n.take(), "= dropped b")
	})
	with(t, func(n *node, _ *Options) { n.slow["evict a"] = time.Second }, func(n *node, x *Executor) {
		x.Follow(step(evict.Needed, danger("a"), danger("b")))
		if h := x.Held(); h["b-uid"] != evict.ByDanger {
			t.Errorf("held %v", h)
		}
		x.Follow(step(evict.Unknown))
		pass(2 * time.Second)
		if got := n.take(); !strings.Contains(got, "= accepted b") {
			t.Errorf("danger waits: %q", got)
		}
	})
}

// Where the steps come to a standstill nobody goes by what the last one has said, however many might go by then; where it has lasted, nor by what the
// next one says of those of before: they are chosen anew, if they still are.
func TestNobodyGoesByAnOldStep(t *testing.T) {
	t.Parallel()
	with(t, func(_ *node, o *Options) { o.Burst, o.Every = 1, 5*time.Second }, func(n *node, x *Executor) {
		x.Follow(step(evict.Needed, calm("a"), calm("b")))
		n.take()
		pass(20 * time.Second) // the loops are stuck
		want(t, n.take())
		follow(x, time.Second, evict.Needed)
		want(t, n.take(), "evict b b-uid 20s", "= accepted b", "event node-001 Evicted b b-uid 0s")
	})
	with(t, func(_ *node, o *Options) { o.Burst, o.Every = 1, 5*time.Second }, func(n *node, x *Executor) {
		x.Follow(step(evict.Needed, calm("a"), calm("b"), calm("c")))
		n.take()
		n.put(pod("b", ""), pod("c", ""))
		n.set(func() { n.away = time.Hour }) // the machine is suspended, and its clock goes on
		pass(2 * time.Second)
		want(t, n.take(), "= gone a")
		x.Follow(step(evict.Needed, danger("c")))
		want(t, n.take(), "= dropped b", "= dropped c", "evict c c-uid 5s", "= accepted c", "event node-001 Evicted c c-uid 0s")
	})
	with(t, func(n *node, _ *Options) { n.slow["evict a"] = time.Second }, func(n *node, x *Executor) {
		x.Follow(step(evict.Needed, danger("a"), danger("b")))
		want(t, n.take(), "evict a a-uid 5s")
		n.set(func() { n.away = time.Hour })
		pass(2 * time.Second)
		want(t, n.take(), "= accepted a", "event node-001 Evicted a a-uid 0s")
		follow(x, 2*time.Second, evict.Needed)
		want(t, n.take(), "= dropped b")
	})
	// In danger one late step, or a few, keep nobody; and where a step is to come once a minute it may be as old.
	with(t, func(n *node, _ *Options) { n.slow["evict a"], n.slow["delete a"] = time.Hour, time.Hour }, func(n *node, x *Executor) {
		x.Follow(step(evict.Needed, danger("a"), danger("b"), calm("c")))
		pass(5 * time.Second)
		if got := n.take(); !strings.Contains(got, "= accepted b") || strings.Contains(got, "evict c") {
			t.Errorf("%q", got)
		}
	})
	with(t, func(_ *node, o *Options) { o.Interval, o.Burst, o.Every = time.Minute, 1, 90*time.Second }, func(n *node, x *Executor) {
		x.Follow(step(evict.Needed, calm("a"), calm("b")))
		n.put(pod("b", ""), pod("c", ""))
		pass(time.Second)
		n.take()
		pass(time.Minute)
		x.Follow(step(evict.Needed))
		pass(40 * time.Second)
		want(t, n.take(), "evict b b-uid 20s", "= accepted b", "event node-001 Evicted b b-uid 0s")
	})
}

// However many may go at once, a step sends no more than it needs: what is left of the need then the next one says. Who goes in danger counts.
func TestNoMoreThanAStepNeeds(t *testing.T) {
	t.Parallel()
	const gib = unit.Bytes(1 << 30)
	large := func(e evict.Eviction) evict.Eviction { e.Memory = gib; return e }
	left := func(left unit.Bytes, victims ...evict.Eviction) *evict.Output {
		out := step(evict.Needed, victims...)
		out.Decisions[0].Memory.Left = left
		return out
	}
	with(t, nil, func(n *node, x *Executor) {
		x.Follow(step(evict.Unknown, large(calm("a")), large(calm("b")), large(calm("c"))))
		pass(10 * time.Second)
		want(t, n.take())
		one := left(gib)
		x.Held() // as each step looks before it decides
		x.Follow(one)
		pass(5 * time.Second)
		want(t, n.take(), "evict a a-uid 20s", "= accepted a", "event node-001 Evicted a a-uid 0s")
		if one.Decisions[0].Memory.Left != gib {
			t.Error("the step's own output is changed")
		}
		x.Held()
		x.Follow(left(gib, large(danger("c"))))
		pass(5 * time.Second)
		want(t, n.take(), "evict c c-uid 5s", "= accepted c", "event node-001 Evicted c c-uid 0s")
		x.Follow(left(gib)) // which had looked before c was asked for
		pass(5 * time.Second)
		want(t, n.take())
		x.Held()
		x.Follow(left(1))
		pass(time.Second)
		want(t, n.take(), "evict b b-uid 20s", "= accepted b", "event node-001 Evicted b b-uid 0s")
	})
}

// A pod that nobody has asked to go is not stuck, however long it waits for that; unless somebody else has deleted it.
func TestWhoWaitsIsNotStuck(t *testing.T) {
	t.Parallel()
	with(t, func(_ *node, o *Options) { o.Burst, o.Every = 1, time.Hour }, func(n *node, x *Executor) {
		submit(x, calm("a"), calm("b"))
		pass(5 * time.Minute)
		if got := x.Leaving()["b-uid"]; got != n.clock() {
			t.Errorf("leaves since %d, at %d", got, n.clock())
		}
		n.put(pod("a", ""), pod("b", deleted))
		pass(2 * time.Second)
		since := x.Leaving()["b-uid"]
		pass(time.Minute)
		if got := x.Leaving()["b-uid"]; got != since || x.Held()["b-uid"] != evict.NotHeld {
			t.Errorf("deleted by somebody else: leaves since %d, %d; held %v", since, got, x.Held())
		}
	})
}

// The loop closed, with pods that take their time to end: 13 of 1 GiB are chosen at once, eight are asked for, and of the others as many as are still
// needed after three seconds.
func TestLoadThatGoes(t *testing.T) {
	t.Parallel()
	const gib = unit.Bytes(1 << 30)
	for name, c := range map[string]struct {
		used unit.Bytes // of 128 GiB, after 106
		off  bool
		want int
	}{
		"it stays":                        {used: 106 * gib, want: 13},
		"it grows":                        {used: 108 * gib, want: 15},
		"it is less":                      {used: 105 * gib, want: 12},
		"it is less than the threshold":   {used: 95 * gib, want: 11},
		"it is gone":                      {used: 90 * gib, want: 11},
		"evictions are switched off then": {used: 106 * gib, off: true, want: 11},
	} {
		var names []string
		for i := range 40 {
			names = append(names, fmt.Sprintf("p%02d", i))
		}
		with(t, func(n *node, _ *Options) {
			n.put()
			for _, name := range names {
				n.pods = append(n.pods, pod(name, ""))
			}
		}, func(n *node, x *Executor) {
			var s evict.State
			asked := 0
			for second := range 20 {
				on := second < 3 || !c.off
				in := evict.Input{
					Now: n.clock(), Features: evict.All, Memory: evict.Memory{Capacity: 128 * gib, Used: unit.Got(106 * gib)},
					Strategy: strategy.ResourceThresholdStrategy{Enable: &on, MemoryEvictThresholdPercent: new(int64(75))},
				}
				if second >= 3 {
					in.Memory.Used.V = c.used
				}
				leaving, held := x.Leaving(), x.Held()
				for _, name := range names {
					p := evict.Pod{UID: name + "-uid", Namespace: "batch", Name: name, BE: true, Allowed: evict.All, MemoryUsed: unit.Got(gib), Held: held[name+"-uid"]}
					p.LeavingSince, p.Leaving = leaving[p.UID]
					in.Pods = append(in.Pods, p)
				}
				var out evict.Output
				s, out = evict.Step(s, in)
				x.Follow(&out)
				pass(time.Second)
				asked += strings.Count(n.take(), "= accepted")
			}
			if asked != c.want {
				t.Errorf("%s: %d pods are evicted, want %d", name, asked, c.want)
			}
		})
	}
}
