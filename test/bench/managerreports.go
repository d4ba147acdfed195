// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// What the pods of a simulated node use, in thousandths of a CPU and MiB, and what runs beside them.
const (
	lsMilli, lsMiB         = 400, 1200
	beMilli, beMiB         = 500, 800
	systemMilli, systemMiB = 1000, 2048
)

// reporter sends the NodeMetrics of all nodes, evenly over the interval.
type reporter struct {
	sent, early, failed atomic.Int64
	last                atomic.Pointer[error] // of those that failed
	end                 context.CancelFunc
	done                chan struct{}
}

// report begins to send.
func (w *world) report(ctx context.Context) *reporter {
	ctx, cancel := context.WithCancel(ctx)
	p := &reporter{end: cancel, done: make(chan struct{})}
	due := make(chan int)
	var all sync.WaitGroup
	for range fillers {
		all.Go(func() {
			for node := range due {
				p.one(ctx, w, node)
			}
		})
	}
	go func() {
		defer close(p.done)
		p.pace(ctx, w.b.o.manager, due)
		close(due)
		all.Wait()
	}()
	return p
}

// pace names the node whose turn it is. What a machine that is too slow misses is not made up for: it would never be idle again.
func (p *reporter) pace(ctx context.Context, o managerOptions, due chan<- int) {
	step := o.every / time.Duration(o.nodes)
	next := time.Now()
	for node := 0; ; node = (node + 1) % o.nodes {
		if wait(ctx, time.Until(next)) != nil {
			return
		}
		select {
		case due <- node:
		case <-ctx.Done():
			return
		}
		if next = next.Add(step); time.Since(next) > time.Second {
			next = time.Now()
		}
	}
}

// one reports for a node. Until a manager has made its NodeMetric there is nowhere to report to.
func (p *reporter) one(ctx context.Context, w *world, node int) {
	o := w.b.o.manager
	body := reportOf(node, o, 1+o.wobble*(2*rand.Float64()-1), time.Now())
	_, err := w.cluster.Admin().Patch(ctx, sloPath+"/nodemetrics/"+nodeName(node)+"/status", cluster.JSONPatch, body)
	switch {
	case err == nil:
		p.sent.Add(1)
	case cluster.Refused(err, "NotFound"):
		p.early.Add(1)
	case ctx.Err() == nil:
		p.failed.Add(1)
		p.last.Store(&err)
	}
}

func (p *reporter) stop() {
	p.end()
	<-p.done
}

// problem is an error when reports failed.
func (p *reporter) problem() error {
	if err := p.last.Load(); err != nil {
		return fmt.Errorf("%d reports failed, the last one: %w", p.failed.Load(), *err)
	}
	return nil
}

// reportOf is a patch as koordlet sends it: the whole status, of a node whose pods use factor times what they use on average.
func reportOf(node int, o managerOptions, factor float64, now time.Time) []byte {
	var pods strings.Builder
	milli, mib := systemMilli, systemMiB
	for nth := range o.reported {
		class, priority, m, b := classOf(nth), "koord-prod", lsMilli, lsMiB
		if class == "BE" {
			priority, m, b = "koord-batch", beMilli, beMiB
		}
		m, b = int(float64(m)*factor), int(float64(b)*factor)
		milli, mib = milli+m, mib+b
		if nth > 0 {
			pods.WriteString(",")
		}
		fmt.Fprintf(&pods, `{"namespace":%q,"name":%q,"priority":%q,"qos":%q,"podUsage":{"resources":{"cpu":"%dm","memory":"%dMi"}}}`,
			namespace, podName(node, nth), priority, class, m, b)
	}
	resources := func(milli, mib int) string {
		return fmt.Sprintf(`{"resources":{"cpu":"%dm","memory":"%dMi"}}`, milli, mib)
	}
	var aggregated []string
	for _, window := range []string{"5m0s", "10m0s", "30m0s"} {
		var quantiles []string
		for _, q := range []string{"avg", "p50", "p90", "p95", "p99"} {
			quantiles = append(quantiles, fmt.Sprintf("%q:%s", q, resources(milli, mib)))
		}
		aggregated = append(aggregated, fmt.Sprintf(`{"duration":%q,"usage":{%s}}`, window, strings.Join(quantiles, ",")))
	}
	return fmt.Appendf(nil, `[{"op":"add","path":"/status","value":{"updateTime":%q,"nodeMetric":{"nodeUsage":%s,"systemUsage":%s,"aggregatedNodeUsages":[%s]},`+
		`"podsMetric":[%s],"prodReclaimableMetric":{"resource":%s}}}]`, now.UTC().Format(time.RFC3339), resources(milli, mib),
		resources(systemMilli, systemMiB), strings.Join(aggregated, ","), pods.String(), resources(4000, 8192))
}
