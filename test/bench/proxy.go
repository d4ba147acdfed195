// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab"
)

const (
	relayGoal    = 2.0      // ours added / relay added, at most
	upstreamGoal = 4.0      // upstream added / ours added, at least
	loadGoal     = 0.85     // ours / direct in calls per second, at least
	loadedGoal   = 48 << 20 // bytes
	warmCalls    = 50
	// leastContainer is fewer bytes than a container takes in a list: a shorter reply is not the whole list.
	leastContainer = 200
)

// proxyOptions are those of the benchmark of the CRI proxy.
type proxyOptions struct {
	calls, pairs, rounds, clients, buffer int
	load                                  time.Duration
	third, apart                          bool
}

func (o *proxyOptions) flags(f *flag.FlagSet) {
	f.IntVar(&o.calls, "calls", 2000, "proxy: rounds of ListContainers, one call each way")
	f.IntVar(&o.pairs, "proxy-pairs", 500, "proxy: pairs of pods, direct and through ours")
	f.BoolVar(&o.third, "third", false, "proxy: make each pod through upstream's, too")
	f.BoolVar(&o.apart, "apart-pairs", false, "proxy: make each pod through the relay, too, and directly with the request that ours would have written")
	f.IntVar(&o.rounds, "load-rounds", 12, "proxy: rounds of the read load")
	f.DurationVar(&o.load, "load", 500*time.Millisecond, "proxy: length of the read load each way and round")
	f.IntVar(&o.clients, "clients", 64, "proxy: clients of the read load")
	f.IntVar(&o.buffer, "relay-buffer", 0, "proxy: bytes of the byte relay's buffers; 0 leaves the way of copying to io.Copy, which here is splice(2)")
}

// proxy compares ways to one containerd: direct, through a byte relay, through our proxy and through upstream's.
func (b *bench) proxy(ctx context.Context, r *report) (err error) {
	rig, err := newRig(ctx)
	if err != nil {
		return err
	}
	defer func() {
		b.say("proxy: remove the containers")
		err = errors.Join(err, rig.close())
	}()
	if err := b.proxyAtRest(ctx, r, rig); err != nil {
		return err
	}
	f, err := b.startFleet(ctx, rig, b.o.running, 10)
	if err != nil {
		return err
	}
	rd, err := b.openRoad(ctx, rig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rd.close()) }()
	if err := b.settle(ctx, rd.ours); err != nil {
		return err
	}
	versions, err := lab.Versions()
	if err != nil {
		return err
	}
	r.note("upstream's proxy %s; relay's buffers %d bytes (0: io.Copy, splice); %d running containers", versions["UPSTREAM_KOORDINATOR"], b.o.proxy.buffer, b.o.running)
	tellResident(r, rd, fmt.Sprintf("memory with %d containers", b.o.running), nil)
	if err := b.latencies(ctx, r, rd); err != nil {
		return err
	}
	if err := b.throughput(ctx, r, rd, f); err != nil {
		return err
	}
	if err := b.creates(ctx, r, rig, rd); err != nil {
		return err
	}
	tellResident(r, rd, "memory after the pods", nil)
	return b.binary(ctx, r, program{
		name: "koord-runtime-proxy", source: "./cri-proxy", kind: "gRPC, client-go and apimachinery",
		unwanted: append(unwanted(), "google.golang.org/grpc"),
	})
}

// proxyAtRest reads the memory of the proxies before an empty runtime.
func (b *bench) proxyAtRest(ctx context.Context, r *report, rig *rig) (err error) {
	rd, err := b.openRoad(ctx, rig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rd.close()) }()
	if rd.why != nil {
		r.tell("upstream koord-runtime-proxy", "could not be started")
		r.note("upstream's proxy could not be started: %v", rd.why)
	}
	b.say("proxy: rest %s", b.o.rest)
	if err := wait(ctx, b.o.rest); err != nil {
		return err
	}
	tellResident(r, rd, "memory at rest", func(m resident) (string, bool) { return "≤ 20 MiB", m.rss<<10 <= restGoal })
	return nil
}

// tellResident reads the memory of the proxies; goal judges ours, nil only tells.
func tellResident(r *report, rd *road, when string, goal func(resident) (string, bool)) {
	for _, name := range []string{wayOurs, wayUpstream} {
		w := rd.way(name)
		if w == nil {
			continue
		}
		m, err := residentOf(w.pid)
		switch {
		case err != nil:
			r.judge(when+", "+name, "", err.Error(), false)
		case name == wayOurs && goal != nil:
			text, ok := goal(m)
			r.judge(when+", "+name, text, m.String(), ok)
		default:
			r.tell(when+", "+name, "%s", m)
		}
	}
}

// latencies times calls that are only passed on, one at a time, each way once per round, in an order drawn anew.
func (b *bench) latencies(ctx context.Context, r *report, rd *road) error {
	conns := map[string]*grpc.ClientConn{}
	defer func() {
		for _, c := range conns {
			_ = c.Close() // nothing is under way
		}
	}()
	for _, w := range rd.ways {
		var err error
		if conns[w.name], err = dialWay(w); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		name, method string
		least        int
	}{
		{"ListContainers", runtimeapi.RuntimeService_ListContainers_FullMethodName, b.o.running * leastContainer},
		{"Version", runtimeapi.RuntimeService_Version_FullMethodName, 1},
	} {
		b.say("proxy: %d rounds of %s", b.o.proxy.calls, c.name)
		seconds, sizes, err := b.timeCalls(ctx, rd, conns, c.method, c.least)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		judgeLatencies(r, c.name, seconds, c.name == "ListContainers")
		for _, w := range rd.ways {
			r.note("%-14s %-8s reply %d bytes, %s", c.name, w.name, sizes[w.name], seconds[w.name].line())
		}
	}
	return nil
}

// timeCalls returns seconds by way and round, and the bytes of the last replies.
func (b *bench) timeCalls(ctx context.Context, rd *road, conns map[string]*grpc.ClientConn, method string, least int) (map[string]sample, map[string]int, error) {
	seconds, sizes := map[string]sample{}, map[string]int{}
	draw := rand.New(rand.NewPCG(3, 4))
	for round := -warmCalls; round < b.o.proxy.calls; round++ {
		for _, i := range draw.Perm(len(rd.ways)) {
			name := rd.ways[i].name
			s, size, err := callUnread(ctx, conns[name], method)
			if err != nil {
				return nil, nil, fmt.Errorf("%s, round %d: %w", name, round, err)
			}
			if size < least {
				return nil, nil, fmt.Errorf("%s, round %d: a reply of %d bytes is not the whole", name, round, size)
			}
			if round >= 0 {
				seconds[name], sizes[name] = append(seconds[name], s), size
			}
		}
	}
	return seconds, sizes, nil
}

// judgeLatencies compares what the ways add; goals says whether there are any.
func judgeLatencies(r *report, call string, seconds map[string]sample, goals bool) {
	direct := seconds[wayDirect]
	r.tell(call+", median direct", "%s", took(direct.sorted().median()))
	for _, name := range []string{wayRelay, wayOurs, wayUpstream} {
		if s := seconds[name]; len(s) > 0 {
			r.tell(fmt.Sprintf("%s, %s adds [95 %%]", call, name), "%s", addedBy(s, direct, resamples).seconds())
		}
	}
	toRelay := ratioOfAdded(seconds[wayOurs], seconds[wayRelay], direct, resamples)
	upstream := ratioOfAdded(seconds[wayUpstream], seconds[wayOurs], direct, resamples)
	near, far := figure{call + ", added by ours / by relay [95 %]", "", toRelay.String(), ""}, figure{call + ", added by upstream / by ours [95 %]", "", upstream.String(), ""}
	if len(seconds[wayUpstream]) == 0 {
		far.value = "not measured" // could not be started
	}
	if goals {
		near.goal, near.verdict = "≤ 2", toRelay.verdict(relayGoal)
		far.goal, far.verdict = "≥ 4", upstream.atLeast(upstreamGoal)
	}
	r.figures = append(r.figures, near, far)
}
