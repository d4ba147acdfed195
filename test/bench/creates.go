// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/cri"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// warmPairs are made before the ones that count.
const warmPairs = 20

// creates makes the same pods through our proxy and past it, as pairs does, on the containerd that has the fleet.
func (b *bench) creates(ctx context.Context, r *report, shared *rig, rd *road) (err error) {
	names := []string{wayOurs, wayDirect}
	if b.o.proxy.third && rd.way(wayUpstream) != nil {
		names = append(names, wayUpstream)
	}
	if b.o.proxy.apart {
		names = append(names, wayRelay, wayAsked)
	}
	var sides []*side
	var ends []func() error
	defer func() {
		for _, end := range ends {
			err = errors.Join(err, end())
		}
	}()
	for i, name := range names {
		w, over := rd.way(name), plain
		if name == wayAsked {
			ours, err := askedByOurs(ctx, shared, rd)
			if err != nil {
				return err
			}
			w, over = rd.way(wayDirect), func(c runtimeapi.RuntimeServiceClient) runtimeapi.RuntimeServiceClient {
				return &asking{RuntimeServiceClient: c, ours: ours}
			}
		}
		rig, end, err := through(ctx, shared, w, over)
		if err != nil {
			return err
		}
		ends = append(ends, end)
		sides = append(sides, &side{name: name, rig: rig, prefix: fmt.Sprintf("pair%d", i)})
	}
	b.say("proxy: %d pairs of pods after %d that do not count", b.o.proxy.pairs, warmPairs)
	for i := -warmPairs; i < b.o.proxy.pairs; i++ {
		if i > 0 && i%100 == 0 {
			b.say("proxy: pair %d of %d", i, b.o.proxy.pairs)
		}
		if err := pair(ctx, sides, i+warmPairs, i >= 0); err != nil {
			return fmt.Errorf("pair %d: %w", i, err)
		}
	}
	if err := tellAfterStart(ctx, r, rd.ours); err != nil {
		return err
	}
	direct := sides[1]
	for _, s := range sides {
		if s != direct {
			judgeCreates(r, s, direct)
		}
		if s.name == wayAsked {
			judgeCreates(r, sides[0], s)
		}
	}
	for _, s := range sides {
		for c, name := range calls {
			r.note("%-8s %-16s %s", s.name, name, s.seconds[c].line())
		}
	}
	return nil
}

// afterStartFamily is our proxy's histogram of what no request can carry.
const afterStartFamily = "koord_rt_cri_after_start_seconds"

// tellAfterStart tells how long after the runtime's answer to a start the values are in force that no request can carry.
func tellAfterStart(ctx context.Context, r *report, ours *process) error {
	all, err := scrape(ctx, ours.metrics, "http://koord-runtime-proxy/metrics", afterStartFamily, "", func(map[string]string) bool { return true })
	if err != nil {
		return err
	}
	const name = "values that no request carries, in force after the runtime's answer to a start, p50, p99"
	h := all[""]
	if h.count == 0 {
		r.tell(name, "no start has had any")
		return nil
	}
	r.tell(name, "%s, %s (%d starts)", took(h.quantile(0.5)), took(h.quantile(0.99)), h.count)
	r.note("after start      %s", h.line())
	return nil
}

// through is a kubelet of its own on the same runtime, over a client of its own; over stands between its kubelet and its
// stopwatch. Only the shared rig is closed; end closes the client.
func through(ctx context.Context, shared *rig, w *way, over func(runtimeapi.RuntimeServiceClient) runtimeapi.RuntimeServiceClient) (r *rig, end func() error, err error) {
	client, err := cri.Dial(w.socket)
	if err != nil {
		return nil, nil, err
	}
	r = &rig{host: shared.host, tree: shared.tree, calls: &stopwatch{RuntimeServiceClient: client.Runtime}}
	timed := *client
	timed.Runtime = over(r.calls)
	if r.kube, err = kubelet.New(ctx, kubelet.Options{CRI: &timed, LogDir: r.host.Logs, Root: r.host.Cgroup}); err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return r, client.Close, nil
}

// plain sends what it is given.
func plain(c runtimeapi.RuntimeServiceClient) runtimeapi.RuntimeServiceClient { return c }

// judgeCreates compares one way with another; the goal is that of CreateContainer through ours beside none in between.
func judgeCreates(r *report, s, other *side) {
	for c, name := range calls {
		a, z := s.seconds[c], other.seconds[c]
		all := ratioOfMedians(a, z, resamples)
		fig := figure{fmt.Sprintf("%s, median %s / %s [95 %%]", name, s.name, other.name), "", fmt.Sprintf("%s (%s / %s)", all, took(a.sorted().median()), took(z.sorted().median())), ""}
		if name == "CreateContainer" && s.name == wayOurs && other.name == wayDirect {
			fig.goal, fig.verdict = "≤ 1.03", all.verdict(pairGoal)
		}
		r.figures = append(r.figures, fig)
		r.note("%s/%s %-16s all %s  LS %s  BE %s", s.name, other.name, name, all,
			ratioOfMedians(half(a, 0), half(z, 0), resamples), ratioOfMedians(half(a, 1), half(z, 1), resamples))
	}
}
