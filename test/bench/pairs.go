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

// pairs creates the same pod on containerds that differ in their plugin only, one right after the other.
func (b *bench) pairs(ctx context.Context, r *report) (err error) {
	names := []string{"ours", "noop"}
	if b.o.stamp {
		names = append(names, "stamp")
	}
	if b.o.none {
		names = append(names, "none")
	}
	var sides []*side
	defer func() {
		for _, s := range sides {
			err = errors.Join(err, s.rig.close())
		}
	}()
	for _, name := range names {
		rig, err := newRig(ctx)
		if err != nil {
			return err
		}
		s := &side{name: name, rig: rig, prefix: "pair"}
		sides = append(sides, s)
		if name == "none" {
			continue
		}
		if s.p, err = b.startPlugin(ctx, rig, name); err != nil {
			return err
		}
	}
	if err := b.settle(ctx, sides[0].p); err != nil {
		return err
	}
	for i := -20; i < b.o.pairs; i++ { // the first ones warm up
		if i > 0 && i%100 == 0 {
			b.say("pairs: %d of %d", i, b.o.pairs)
		}
		if err := pair(ctx, sides, i); err != nil {
			return fmt.Errorf("pair %d: %w", i, err)
		}
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

// pair makes one pod on every side, in an order that changes from pair to pair, and removes them afterwards. All three
// calls of a side come in a row, as from a kubelet: work that the plugin does behind its reply to one is felt by the next.
func pair(ctx context.Context, sides []*side, i int) error {
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
		run, err := s.rig.kube.StartPod(ctx, pod(s.prefix, i+20, 1))
		if err != nil {
			return err
		}
		runs[k] = run
		if i >= 0 {
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
