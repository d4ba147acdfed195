// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mix of the read load, over and over: mostly single containers, as kubelet asks for those that changed, and the list.
var mix = [...]string{"status", "status", "version", "status", "list", "status", "status", "version", "status", "version"}

// readLoad is clients that ask as fast as they get answers; they decode replies, as kubelet does.
type readLoad struct {
	ids []string // of running containers
	// clients by way.
	clients map[string][]runtimeapi.RuntimeServiceClient
	conns   []*grpc.ClientConn
}

func newReadLoad(rd *road, f *fleet, clients int) (*readLoad, error) {
	l := &readLoad{clients: map[string][]runtimeapi.RuntimeServiceClient{}}
	for _, p := range f.pods {
		l.ids = append(l.ids, slices.Sorted(maps.Values(p.Containers))...)
	}
	for _, w := range rd.ways {
		for range clients {
			conn, err := dialWay(w)
			if err != nil {
				l.close()
				return nil, err
			}
			l.conns = append(l.conns, conn)
			l.clients[w.name] = append(l.clients[w.name], runtimeapi.NewRuntimeServiceClient(conn))
		}
	}
	return l, nil
}

func (l *readLoad) close() {
	for _, c := range l.conns {
		_ = c.Close() // nothing is under way
	}
}

// run loads one way for d and returns the calls per second that were answered in it and the seconds of each. Calls under
// way at the end are waited for, so that the next way finds an idle machine, and not counted.
func (l *readLoad) run(ctx context.Context, name string, d time.Duration) (perSecond float64, each sample, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([]sample, len(l.clients[name]))
	var wg sync.WaitGroup
	begin := time.Now()
	for i, c := range l.clients[name] {
		wg.Go(func() {
			for n := i; ctx.Err() == nil; n++ { // each starts elsewhere in the mix
				at := time.Now()
				if at.Sub(begin) >= d {
					return
				}
				if err := l.call(ctx, c, n); err != nil {
					cancel(err)
					return
				}
				if end := time.Now(); end.Sub(begin) <= d {
					took[i] = append(took[i], end.Sub(at).Seconds())
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return 0, nil, fmt.Errorf("load %s: %w", name, err)
	}
	each = slices.Concat(took...)
	return float64(len(each)) / d.Seconds(), each, nil
}

// call is number n of a client; a reply that is not the asked one is an error.
func (l *readLoad) call(ctx context.Context, c runtimeapi.RuntimeServiceClient, n int) error {
	switch mix[n%len(mix)] {
	case "list":
		reply, err := c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err == nil && len(reply.Containers) < len(l.ids) {
			err = fmt.Errorf("%d of %d containers are listed", len(reply.Containers), len(l.ids))
		}
		return err
	case "status":
		id := l.ids[n%len(l.ids)]
		reply, err := c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err == nil && reply.GetStatus().GetId() != id {
			err = fmt.Errorf("status of %s is that of %q", id, reply.GetStatus().GetId())
		}
		return err
	}
	_, err := c.Version(ctx, &runtimeapi.VersionRequest{})
	return err
}

// throughput loads each way in turn, round by round, and reads the memory that this has left.
func (b *bench) throughput(ctx context.Context, r *report, rd *road, f *fleet) error {
	l, err := newReadLoad(rd, f, b.o.proxy.clients)
	if err != nil {
		return err
	}
	defer l.close()
	b.say("proxy: %d rounds of load by %d clients, %s each way", b.o.proxy.rounds, b.o.proxy.clients, b.o.proxy.load)
	rates := map[string]sample{}
	for round := -1; round < b.o.proxy.rounds; round++ { // the first one warms up
		for _, w := range loadOrder(rd.ways, round) {
			rate, each, err := l.run(ctx, w.name, b.o.proxy.load)
			if err != nil {
				return err
			}
			if round >= 0 {
				rates[w.name] = append(rates[w.name], rate)
				r.note("load, round %d, %-8s %.0f calls/s, %s", round+1, w.name, rate, each.line())
			}
		}
	}
	clients := fmt.Sprintf("%d clients", b.o.proxy.clients)
	for _, w := range rd.ways[1:] {
		i := ratioOfMeans(rates[w.name], rates[wayDirect], resamples)
		fig := figure{"calls/s of " + clients + ", " + w.name + " / direct [95 %]", "", fmt.Sprintf("%s (%.0f / %.0f)", i,
			rates[w.name].mean(), rates[wayDirect].mean()), ""}
		if w.name == wayOurs {
			fig.goal, fig.verdict = "≥ 0.85", i.atLeast(loadGoal)
		}
		r.figures = append(r.figures, fig)
	}
	tellResident(r, rd, "memory after the load of "+clients, func(m resident) (string, bool) { return "≤ 48 MiB", m.rss<<10 <= loadedGoal })
	return nil
}

// loadOrder begins each round with the next way, so that none always follows the same rest.
func loadOrder(ways []*way, round int) []*way {
	k := (round + len(ways)) % len(ways)
	return slices.Concat(ways[k:], ways[:k])
}
