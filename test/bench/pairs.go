// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

const (
	pairGoal  = 1.03
	resamples = 2000
	// pause between the sides of a pair, so that what a side does behind its last reply is not paid by the next.
	pause = 10 * time.Millisecond
)

// calls of a pair, in order.
var calls = [...]string{"RunPodSandbox", "CreateContainer", "StartContainer"}

// side is one containerd with one kind of plugin.
type side struct {
	name string
	rig  *rig
	p    *process // nil without a plugin
	// prefix of its pods' names: sides that share a containerd need their own.
	prefix string
	// seconds by call and pair; class tells LS (even) from BE pairs by its index.
	seconds [len(calls)]sample
}

// turnsOfEach is how often each plugin sits on each containerd, and warmTurn how many pairs after a change do not count.
const (
	turnsOfEach = 4
	warmTurn    = 10
)

// pairs creates the same pod on containerds that differ in their plugin only, one right after the other. Two processes of one
// program differ by some per cent, by where their memory and files happen to lie, for as long as they run. So plugins
// change places: each sits on each containerd for the same number of pairs.
func (b *bench) pairs(ctx context.Context, r *report) (err error) {
	names := []string{"ours", "noop"}
	if b.o.stamp {
		names = append(names, "stamp")
	}
	if b.o.none {
		names = append(names, "none")
	}
	sides, rigs := make([]*side, len(names)), make([]*rig, len(names))
	defer func() {
		for _, rig := range rigs {
			if rig != nil {
				err = errors.Join(err, rig.close())
			}
		}
	}()
	for i, name := range names {
		sides[i] = &side{name: name, prefix: "pair"}
		if rigs[i], err = newRig(ctx); err != nil {
			return err
		}
	}
	turns := turnsOfEach * len(names)
	for turn, next := 0, 0; turn < turns; turn++ {
		n := share(b.o.pairs, turns, turn)
		if n == 0 {
			continue
		}
		b.say("pairs: turn %d of %d, %d pairs", turn+1, turns, n)
		if err := b.takePlaces(ctx, r, sides, rigs, turn); err != nil {
			return err
		}
		for i := -warmTurn; i < n; i++ {
			if err := pair(ctx, sides, next, i >= 0); err != nil {
				return fmt.Errorf("turn %d, pair %d: %w", turn+1, i, err)
			}
			next++
		}
		noteTurn(r, sides, turn, n)
	}
	for _, other := range sides[1:] {
		judgePairs(r, sides[0], other)
		if other.name == "stamp" {
			judgePairs(r, other, sides[1]) // what any plugin pays that changes something
		}
	}
	for _, s := range sides {
		for c, name := range calls {
			r.note("%s %-16s %s", s.name, name, s.seconds[c].line())
		}
	}
	return nil
}

// share is the i-th of n parts of a whole: even, because every second pod is LS.
func share(whole, n, i int) int { return 2 * (whole/2*(i+1)/n - whole/2*i/n) }

// takePlaces ends the plugins of the last turn and starts each on the next containerd.
func (b *bench) takePlaces(ctx context.Context, r *report, sides []*side, rigs []*rig, turn int) error {
	for _, s := range sides {
		if s.p != nil {
			if err := s.p.stop(); err != nil {
				return err
			}
			s.p = nil
		}
	}
	for i, s := range sides {
		s.rig = rigs[(i+turn)%len(rigs)]
		if s.name == "none" {
			continue
		}
		var err error
		if s.p, err = b.startPlugin(ctx, s.rig, s.name, plainIndex); err != nil {
			return err
		}
	}
	if err := b.settle(ctx, sides[0].p); err != nil {
		return err
	}
	for _, s := range sides {
		if s.p == nil {
			continue
		}
		if err := noteScheduling(r, s.p); err != nil {
			return err
		}
	}
	return nil
}

// noteTurn tells what the last n pairs say by themselves: how far turns differ is what the places are worth.
func noteTurn(r *report, sides []*side, turn, n int) {
	for _, other := range sides[1:] {
		text := ""
		for c, name := range calls {
			a, z := sides[0].seconds[c], other.seconds[c]
			text += fmt.Sprintf("  %s %.3f", name, a[len(a)-n:].sorted().median()/z[len(z)-n:].sorted().median())
		}
		r.note("turn %2d ours/%-5s%s", turn+1, other.name, text)
	}
}

// pair makes one pod on every side, in an order that changes from pair to pair, and removes them afterwards. All three
// calls of a side come in a row, as from a kubelet: work that the plugin does behind its reply to one is felt by the next.
func pair(ctx context.Context, sides []*side, i int, counts bool) error {
	order := slices.Clone(sides)
	switch {
	case len(order) > 2:
		rand.Shuffle(len(order), func(x, y int) { order[x], order[y] = order[y], order[x] })
	case i/2%2 != 0: // two by two, so that LS and BE pods see both orders
		slices.Reverse(order)
	}
	runs := make([]*kubelet.Running, len(order))
	for k, s := range order {
		if err := wait(ctx, pause); err != nil {
			return err
		}
		run, err := s.rig.kube.StartPod(ctx, pod(s.prefix, i, 1))
		if err != nil {
			return err
		}
		runs[k] = run
		if counts {
			w := s.rig.calls
			for c, d := range []time.Duration{w.runPod, w.create, w.start} {
				s.seconds[c] = append(s.seconds[c], d.Seconds())
			}
		}
	}
	for k, s := range order {
		if err := s.rig.kube.StopPod(ctx, runs[k]); err != nil {
			return err
		}
	}
	return nil
}

// half is the LS (0) or BE (1) part of a sample.
func half(s sample, parity int) sample {
	var out sample
	for i := parity; i < len(s); i += 2 {
		out = append(out, s[i])
	}
	return out
}

func judgePairs(r *report, one, other *side) {
	for c, name := range calls {
		a, z := one.seconds[c], other.seconds[c]
		all := ratioOfMedians(a, z, resamples)
		text := fmt.Sprintf("%s (%s / %s)", all, took(a.sorted().median()), took(z.sorted().median()))
		what := fmt.Sprintf("%s, median %s / %s [95 %%]", name, one.name, other.name)
		if one.name == "ours" && other.name == "noop" {
			r.figures = append(r.figures, figure{what, "≤ 1.03", text, all.verdict(pairGoal)})
		} else {
			r.tell(what, "%s", text)
		}
		r.note("%s/%s %-16s all %s  LS %s  BE %s", one.name, other.name, name, all,
			ratioOfMedians(half(a, 0), half(z, 0), resamples), ratioOfMedians(half(a, 1), half(z, 1), resamples))
	}
}
