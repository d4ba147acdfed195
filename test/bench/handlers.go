// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/daemon/metrics"
)

const (
	handlerGoal = 200e-6 // seconds, p99 inside a handler; a bound of the histogram
	rpcGoal     = 1.1    // ratio to the plugin that does nothing
)

// concurrencies are those at which containers are created, which -at chooses from.
func concurrencies() []int { return []int{1, 10, 64} }

// parseAt reads -at.
func parseAt(text string) (at []int, err error) {
	for _, c := range concurrencies() {
		if slices.Contains(strings.Split(text, ","), strconv.Itoa(c)) {
			at = append(at, c)
		}
	}
	if len(at) != strings.Count(text, ",")+1 {
		return nil, fmt.Errorf("-at is %q, and must name some of %v, separated by commas", text, concurrencies())
	}
	return at, nil
}

// ran are the concurrencies of what was measured, the lowest first.
func ran(m map[int]*measured) []int { return slices.Sorted(maps.Keys(m)) }

// handlerEvents are those of a container's life that the load makes.
var handlerEvents = [...]metrics.Event{
	metrics.EventRunPodSandbox, metrics.EventCreateContainer, metrics.EventStartContainer,
	metrics.EventUpdateContainer, metrics.EventUpdatePodSandbox,
	metrics.EventStopContainer, metrics.EventRemoveContainer, metrics.EventStopPodSandbox, metrics.EventRemovePodSandbox,
}

// rpcEvents are those that a pod's start or resize waits for.
var rpcEvents = [...]metrics.Event{
	metrics.EventRunPodSandbox, metrics.EventCreateContainer, metrics.EventStartContainer,
	metrics.EventUpdateContainer, metrics.EventUpdatePodSandbox,
}

// measured is what one plugin took at one concurrency, over all rounds.
type measured struct {
	own    histograms // inside the handler; only ours
	remote histograms // as containerd sees it, by operation
	// exact are single latencies by operation, known where requests come one at a time.
	exact map[string]sample
	// bare is what the bare plugin's own work took, in seconds, by event; only of bare.
	bare map[string]sample
	// rounds are those of own and of bare.
	rounds shares
	// crowds are, for each wave, the most requests for CreateContainer that were under way; only of the contest's first.
	crowds []int
}

// contest is who is connected at the same time and sees the same requests one after the other, and in which places: the runtime's
// call of whoever comes later finds warmer caches.
type contest struct {
	names []string
	// places are the plugins' indices in a round, by name.
	places func(round int) map[string]string
}

// Names of plugins that do nothing: noop is scheduled as koord-nri is, plain shares a processor, as any plugin does that asks for nothing else.
const (
	idler  = "noop"
	sharer = "plain"
)

// oursNoopBare is koord-nri, two plugins that do nothing, and one that does a fixed piece of work alone. The first three take every order, each
// once in six rounds: over three each has each place, over six each has each before it. bare is last: what it writes, ours must have to write.
var oursNoopBare = contest{names: []string{"ours", idler, sharer, "bare"}, places: func(round int) map[string]string {
	out := map[string]string{"bare": "08"}
	order := inTurn([3]string{"ours", idler, sharer}, round)
	first := 5 - slices.Index(order[:], "ours") // koord-nri's own index stays
	for i, name := range order {
		out[name] = fmt.Sprintf("%02d", first+i)
	}
	return out
}}

// inTurn is the order of a round: each of three has each place once in three rounds, and every order comes once in six.
func inTurn(names [3]string, round int) [3]string {
	if round/len(names)%2 == 1 {
		names[1], names[2] = names[2], names[1]
	}
	var out [3]string
	for i, name := range names {
		out[(i+round)%len(names)] = name
	}
	return out
}

// labels are the names under which the runtime's metrics tell of the contenders in a round.
func (c contest) labels(round int) map[string]string {
	out := map[string]string{}
	for name, index := range c.places(round) {
		if name == "ours" {
			out[index+"-koord-rt"] = name
		} else {
			out[index+"-noop"] = name
		}
	}
	return out
}

// standings are what each contender took at each concurrency.
type standings map[string]map[int]*measured

func (c contest) begin(at []int) standings {
	out := standings{}
	for _, name := range c.names {
		out[name] = map[int]*measured{}
		for _, n := range at {
			out[name][n] = &measured{own: histograms{}, remote: histograms{}, exact: map[string]sample{}, bare: map[string]sample{}, rounds: shares{}}
		}
	}
	return out
}

// apart is handlers with a CPU that only the plugins use: what the events take without the wait for a processor, which on
// a machine with two of them is most of the time of any process under load.
func (b *bench) apart(ctx context.Context, r *report) (err error) {
	back, err := b.leaveCPU()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, back()) }()
	r.note("the plugins have CPU %d to themselves, everything else shares the rest", b.own)
	return b.handlers(ctx, r)
}

// handlers loads one containerd with many running containers, with koord-nri, noop and bare connected.
func (b *bench) handlers(ctx context.Context, r *report) error {
	results, err := b.hold(ctx, r, oursNoopBare, b.o.rounds)
	if err != nil {
		return err
	}
	tellCrowds(r, results["ours"])
	judgeHandlers(r, results["ours"])
	tellBare(r, results["bare"])
	tellRounds(r, results["ours"], results["bare"])
	judgeRPC(r, idler, results)
	judgeRPC(r, sharer, results)
	tellRPC(r, results["bare"], results[idler])
	noteHandlers(r, oursNoopBare, results)
	return nil
}

// hold is the contest on one containerd with many running containers.
func (b *bench) hold(ctx context.Context, r *report, c contest, rounds int) (_ standings, err error) {
	bin, err := fineContainerd(ctx)
	if err != nil {
		return nil, err
	}
	rig, err := newRig(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		b.say("remove the containers")
		if e := rig.close(); err == nil {
			err = e
		}
	}()
	rig.host.Bin = bin
	if err := rig.host.Restart(ctx); err != nil {
		return nil, err
	}
	if _, err := b.startFleet(ctx, rig, b.o.running, 10); err != nil {
		return nil, err
	}
	results := c.begin(b.o.at)
	for round := range rounds {
		if err := b.turn(ctx, r, rig, c, round, rounds, results); err != nil {
			return nil, fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	return results, nil
}

// turn connects the plugins and creates containers at every concurrency.
func (b *bench) turn(ctx context.Context, r *report, rig *rig, who contest, round, rounds int, into standings) error {
	plugins := map[string]*process{}
	for _, name := range who.names {
		p, err := b.startPlugin(ctx, rig, name, who.places(round)[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		plugins[name] = p
	}
	if err := b.settle(ctx, plugins[who.names[0]]); err != nil {
		return err
	}
	for _, name := range who.names {
		if err := noteScheduling(r, plugins[name]); err != nil {
			return err
		}
	}
	began := make([]time.Time, len(b.o.at))
	for i, c := range b.o.at {
		share := rounds * perPod
		pods := (b.o.creates + share - 1) / share
		pods = (pods + c - 1) / c * c // whole waves
		b.say("%s: round %d, %d pods, %d at once", r.name, round+1, pods, c)
		began[i] = time.Now()
		l := load{rig: rig, ours: plugins["ours"], labels: who.labels(round), prefix: fmt.Sprintf("r%dn%d", round, c), wave: c, into: map[string]*measured{}}
		for _, name := range who.names {
			l.into[name] = into[name][c]
		}
		if err := l.run(ctx, pods); err != nil {
			return fmt.Errorf("%d at once: %w", c, err)
		}
		first := into[who.names[0]][c]
		first.crowds = append(first.crowds, l.crowds...)
		r.note("round %d at %d: %d pods in %s (run, create, start, resize, stop %s)", round+1, c, pods, time.Since(began[i]).Round(time.Second), l.steps)
	}
	for _, name := range who.names {
		p := plugins[name]
		if rss, err := residentOf(p.cmd.Process.Pid); err == nil {
			r.note("round %d %s: memory after the load: %s", round+1, name, rss)
		}
		if err := p.stop(); err != nil {
			return err
		}
		if p.bare == "" {
			continue
		}
		if err := readBare(p.bare, b.o.at, began, into[name]); err != nil {
			return err
		}
	}
	return nil
}

// tellCrowds shows that as many requests for CreateContainer were under way as the figures' names say.
func tellCrowds(r *report, ours map[int]*measured) {
	for _, c := range ran(ours) {
		if crowds := ours[c].crowds; len(crowds) > 0 {
			r.judge(fmt.Sprintf("requests for CreateContainer under way at %d, most", c), fmt.Sprint(c),
				fmt.Sprintf("%d (at least %d in each of %d waves)", slices.Max(crowds), slices.Min(crowds), len(crowds)), slices.Max(crowds) == c)
		}
	}
}

// tellBare shows what StartContainer's and UpdateContainer's system calls take when nothing else is done there, and what a piece of arithmetic
// takes in CreateContainer.
func tellBare(r *report, bare map[int]*measured) {
	for _, e := range []struct{ event, name string }{
		{"CreateContainer", "bare arithmetic of " + took(bareWork.Seconds()) + " in CreateContainer"},
		{"StartContainer/LS", "bare system calls of StartContainer, LS"}, {"StartContainer/BE", "bare system calls of StartContainer, BE"},
		{"UpdateContainer/LS", "bare system calls of UpdateContainer, LS"},
		{"UpdateContainer/LS/decided", "the same behind arithmetic of " + took(bareWork.Seconds())},
	} {
		for _, c := range ran(bare) {
			s := bare[c].bare[e.event].sorted()
			if len(s) == 0 {
				continue
			}
			r.tell(fmt.Sprintf("%s at %d, p99", e.name, c), "%s (p50 %s, %.1f %% ≤ 200 µs of %d)",
				took(s.quantile(0.99)), took(s.quantile(0.5)), 100*s.within(handlerGoal), len(s))
		}
	}
}

func judgeHandlers(r *report, ours map[int]*measured) {
	for _, e := range handlerEvents {
		for _, c := range ran(ours) {
			h := ours[c].own[e.String()]
			p99 := h.quantile(0.99)
			r.judge(fmt.Sprintf("inside %s at %d, p99", e, c), "≤ 200 µs",
				fmt.Sprintf("%s (p50 %s, %.1f %% ≤ 200 µs of %d)", took(p99), took(h.quantile(0.5)), 100*h.within(handlerGoal), h.count),
				h.within(handlerGoal) >= 0.99)
		}
	}
}

// judgeRPC compares our calls as the runtime sees them with those of a plugin that does nothing.
func judgeRPC(r *report, other string, all standings) {
	ours := all["ours"]
	for _, e := range rpcEvents {
		for _, c := range ran(ours) {
			a, z := ours[c].remote[e.String()], all[other][c].remote[e.String()]
			for _, q := range []float64{0.5, 0.99} {
				ratio, how := ratioRPC(e, q, ours[c], all[other][c])
				r.judge(fmt.Sprintf("RPC %s at %d, p%g, ours / %s", e, c, q*100, other), "≤ 1.1", how, ratio <= rpcGoal)
			}
			r.tell(fmt.Sprintf("RPC %s at %d, mean, ours / %s", e, c, other), "%.2f (%s / %s)", a.mean()/z.mean(), took(a.mean()), took(z.mean()))
		}
	}
}

// tellRPC shows what the call of a plugin takes in the median that does nothing but the arithmetic and one annotation, or in half of
// the updates one write: no plugin that decides anything and says so in its answer is nearer to one that does nothing.
func tellRPC(r *report, bare, noop map[int]*measured) {
	for _, e := range []metrics.Event{metrics.EventCreateContainer, metrics.EventUpdateContainer} {
		for _, c := range ran(bare) {
			_, how := ratioRPC(e, 0.5, bare[c], noop[c])
			r.tell(fmt.Sprintf("RPC %s at %d, p50, bare / noop", e, c), "%s", how)
		}
	}
}

// ratioRPC compares a quantile of an event's calls as the runtime sees them, exactly where each is known.
func ratioRPC(e metrics.Event, q float64, one, other *measured) (ratio float64, how string) {
	a, z := one.remote[e.String()].quantile(q), other.remote[e.String()].quantile(q)
	how = "interpolated"
	if x, y := one.exact[e.String()].sorted(), other.exact[e.String()].sorted(); len(x) > 0 && len(y) > 0 {
		a, z, how = x.quantile(q), y.quantile(q), "exact"
	}
	return a / z, fmt.Sprintf("%.2f (%s / %s, %s)", a/z, took(a), took(z), how)
}

func noteHandlers(r *report, who contest, results standings) {
	for _, name := range who.names {
		for _, c := range ran(results[name]) {
			m := results[name][c]
			for _, k := range slices.Sorted(maps.Keys(m.own)) {
				if m.own[k].count > 0 {
					r.note("own        %s at %-2d %-20s %s", name, c, k, m.own[k].line())
				}
			}
			for _, k := range slices.Sorted(maps.Keys(m.remote)) {
				if m.remote[k].count > 0 {
					r.note("containerd %s at %-2d %-20s %s", name, c, k, m.remote[k].line())
				}
			}
			for _, k := range slices.Sorted(maps.Keys(m.exact)) {
				r.note("exact      %s at %-2d %-20s %s", name, c, k, m.exact[k].line())
			}
			for _, k := range slices.Sorted(maps.Keys(m.bare)) {
				r.note("bare       %s at %-2d %-20s %s", name, c, k, m.bare[k].line())
			}
			if len(m.crowds) > 0 {
				r.note("CRI        %s at %-2d %-20s most under way, by wave: %v", name, c, "CreateContainer", m.crowds)
			}
		}
	}
}
