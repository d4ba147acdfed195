// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// yieldPods are the node's, of one container each, LS and BE by turns.
	yieldPods = 4
	// yieldRoom is the quota from which a load can take leastTaken and more than the wobble. On two CPUs the class has 65 % of them, 1.3 CPUs, less
	// what the system uses: the reaction's two CPUs of room are never there.
	yieldRoom = leastTaken + yieldWobble
	// yieldWobble is what the quota moves by while nothing happens, as system, control plane and agent use more or less. It is less than
	// leastTaken, so that the wobble alone is no answer, and than what a class grows by in calmFor after a cut, a tenth of the node each second.
	yieldWobble = 300
	// yieldEvery lies between two reads of the quota. Both CPUs are in use: reading more often would take from what is measured, and answers come
	// after tenths of a second.
	yieldEvery = time.Millisecond
	// yieldWithin bounds a turn. What has not come by then has not come.
	yieldWithin = 30 * time.Second
)

// yieldOptions are those of the benchmark of how soon best effort gives way.
type yieldOptions struct{ rounds int }

func (o *yieldOptions) flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "yield-rounds", 15, "yield: loads in each leg of -legs")
}

// yield lets loads come to an LS pod of a real node, under our agent and upstream's by turns, and looks how soon best effort has less.
func (b *bench) yield(ctx context.Context, r *report) (err error) {
	n, err := b.newPeersNode(ctx, r, yieldPods, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	s, err := n.newStage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r.note("turns, since the load's begin; quotas of kubepods/besteffort in CPUs; what best effort and the load used is until the turn's end")
	var all yields
	for i, way := range strings.Split(b.o.agent.legs, ",") {
		b.say("yield: leg %d, %s", i+1, way)
		r.note("leg %d: %s", i+1, way)
		got, err := s.leg(ctx, r, way, b.o.yield.rounds)
		if err != nil {
			err = fmt.Errorf("leg %d, %s: %w", i+1, way, err)
			if ctx.Err() == nil {
				err = n.explained(err)
			}
			return err
		}
		all = append(all, got...)
	}
	tellYields(r, all)
	return nil
}

// yielded is a turn, and how much CPU best effort and the load have had from the load's begin to the turn's end, in CPUs.
type yielded struct {
	turn
	batch, load float64
}

// String is the turn in a line.
func (y *yielded) String() string {
	return fmt.Sprintf("%-8s lower %s, by %s CPUs %s; used: best effort %.2f, load %.2f; %d reads, at most %s apart, the last %s after the one before; %s",
		y.Way, instant(y.Less), cpus(leastTaken), instant(y.Taken), y.batch, y.load, y.Reads, took(y.Gap.Seconds()), took(y.Last.Seconds()), y.path())
}

type yields []*yielded

// turns are those of a way.
func (ys yields) turns(way string) (out turns) {
	for _, y := range ys {
		if y.Way == way {
			out = append(out, &y.turn)
		}
	}
	return out
}

// tellYields judges nothing: the goal of reactions is one of pressure, which neither agent goes by here.
func tellYields(r *report, ys yields) {
	what := "LS load begins → BE class's quota lower by " + cpus(leastTaken) + " CPUs, "
	medians := map[string]float64{}
	var unanswered, begun, reads []string
	for _, way := range []string{wayOurs, wayUpstream} {
		ts := ys.turns(way)
		if len(ts) == 0 {
			continue
		}
		answers := ts.of(way, taken)
		medians[way] = answers.median()
		r.tell(what+way, "%s", spread(answers))
		r.note("%-8s taken   %s", way, answers.line())
		r.note("%-8s lower   %s", way, ts.of(way, less).line())
		never := 0
		for _, t := range ts {
			if t.Taken == 0 {
				never++
			}
		}
		unanswered = append(unanswered, fmt.Sprintf("%s %d of %d", way, never, len(ts)))
		begun = append(begun, way+" "+ts.begun())
		each, last := ts.reads()
		reads = append(reads, fmt.Sprintf("%s %s on average, before the one that showed the answer at most %s", way, took(each), took(last.quantile(1))))
	}
	if ours, has := medians[wayOurs]; has && len(medians) == 2 {
		text := "none" // without an answer in half of the turns there is no median
		if v := medians[wayUpstream] / ours; !math.IsNaN(v) && !math.IsInf(v, 0) && v > 0 {
			text = ratio(v)
		}
		r.tell("the same, medians, upstream / ours", "%s", text)
	}
	r.tell(fmt.Sprintf("turns without an answer in %s", yieldWithin), "%s", strings.Join(unanswered, "; "))
	r.tell("quota at the load's begin, CPUs", "%s", strings.Join(begun, "; "))
	r.tell("between two reads of the quota", "%s", strings.Join(reads, "; "))
}

// begun are the quotas at the begin of loads.
func (ts turns) begun() string {
	var quotas []int
	for _, t := range ts {
		quotas = append(quotas, t.Steps[0].Quota)
	}
	slices.Sort(quotas)
	return fmt.Sprintf("%s to %s, median %s", cpus(quotas[0]), cpus(quotas[len(quotas)-1]), cpus(quotas[len(quotas)/2]))
}
