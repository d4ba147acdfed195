// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

const (
	handlerGoal  = 200e-6 // seconds, p99 inside a handler; a bound of the histogram
	rpcGoal      = 1.1    // ratio to the plugin that does nothing
	perPod       = 2      // containers of a pod of the load
	ownFamily    = "koord_rt_nri_event_duration_seconds"
	remoteFamily = "containerd_nri_plugin_latency_seconds"
)

// concurrencies at which containers are created.
var concurrencies = [...]int{1, 10, 64}

// handlerEvents are those of a container's life that the load makes.
var handlerEvents = [...]metrics.Event{
	metrics.EventRunPodSandbox, metrics.EventCreateContainer, metrics.EventStartContainer, metrics.EventStopContainer,
	metrics.EventRemoveContainer, metrics.EventStopPodSandbox, metrics.EventRemovePodSandbox,
}

// rpcEvents are those that a pod's start waits for.
var rpcEvents = [...]metrics.Event{metrics.EventRunPodSandbox, metrics.EventCreateContainer, metrics.EventStartContainer}

// measured is what one plugin took at one concurrency, over all rounds.
type measured struct {
	own    histograms // inside the handler; only ours
	remote histograms // as containerd sees it, by operation
	// exact are single latencies by operation, known where requests come one at a time.
	exact map[string]sample
	make  sample // seconds of CreateContainer over CRI
	// bare is what the system calls of StartContainer took alone, in seconds; only of bare.
	bare sample
}

// contenders are the plugins that take turns: koord-nri, one that does nothing, and one that does the system calls alone.
var contenders = [...]string{"ours", "noop", "bare"}

// apart is handlers with a CPU that only the plugin uses: what the events take without the wait for a processor, which on
// a machine with two of them is most of the time of any process under load.
func (b *bench) apart(ctx context.Context, r *report) (err error) {
	back, err := b.leaveCPU()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, back()) }()
	r.note("the plugin has CPU %d to itself, everything else shares the rest", b.own)
	return b.handlers(ctx, r)
}

// handlers loads one containerd with many running containers, by turns with koord-nri and with noop connected.
func (b *bench) handlers(ctx context.Context, r *report) (err error) {
	bin, err := fineContainerd(ctx)
	if err != nil {
		return err
	}
	rig, err := newRig(ctx)
	if err != nil {
		return err
	}
	defer func() {
		b.say("remove the containers")
		if e := rig.close(); err == nil {
			err = e
		}
	}()
	rig.host.Bin = bin
	if err := rig.host.Restart(ctx); err != nil {
		return err
	}
	if _, err := b.startFleet(ctx, rig, b.o.running, 10); err != nil {
		return err
	}
	results := map[string]map[int]*measured{}
	for _, name := range contenders {
		results[name] = map[int]*measured{}
		for _, c := range concurrencies {
			results[name][c] = &measured{own: histograms{}, remote: histograms{}, exact: map[string]sample{}}
		}
	}
	for round := range b.o.rounds {
		for _, name := range contenders {
			if err := b.turn(ctx, r, rig, name, round, results[name]); err != nil {
				return fmt.Errorf("%s, round %d: %w", name, round+1, err)
			}
		}
	}
	judgeHandlers(r, results["ours"])
	tellBare(r, results["bare"])
	judgeRPC(r, results["ours"], results["noop"])
	noteHandlers(r, results)
	return nil
}

// turn connects one plugin and creates containers at every concurrency.
func (b *bench) turn(ctx context.Context, r *report, rig *rig, name string, round int, into map[int]*measured) error {
	p, err := b.startPlugin(ctx, rig, name)
	if err != nil {
		return err
	}
	if err := b.settle(ctx, p); err != nil {
		return err
	}
	var began [len(concurrencies)]time.Time
	for i, c := range concurrencies {
		b.say("handlers: round %d, %s, %d at once", round+1, name, c)
		began[i] = time.Now()
		l := load{b: b, rig: rig, p: p, prefix: fmt.Sprintf("r%d%s%d", round, name, c), into: into[c]}
		if err := l.run(ctx, c); err != nil {
			return err
		}
	}
	if rss, err := residentOf(p.cmd.Process.Pid); err == nil {
		r.note("round %d %s: memory after the load: %s", round+1, name, rss)
	}
	if err := p.stop(); err != nil || p.bare == "" {
		return err
	}
	return readBare(p.bare, began[:], into)
}

// readBare sorts what the bare plugin wrote by the concurrency at whose time it was.
func readBare(path string, began []time.Time, into map[int]*measured) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read what the bare system calls took: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		var at, took int64
		if _, err := fmt.Sscan(line, &at, &took); err != nil {
			return fmt.Errorf("read what the bare system calls took: line %q: %w", line, err)
		}
		for i := len(began) - 1; i >= 0; i-- {
			if at >= began[i].UnixNano() {
				m := into[concurrencies[i]]
				m.bare = append(m.bare, float64(took)/1e9)
				break
			}
		}
	}
	return nil
}

// tellBare shows what the kernel takes for StartContainer when nothing else is done there.
func tellBare(r *report, bare map[int]*measured) {
	for _, c := range concurrencies {
		s := bare[c].bare.sorted()
		within := 0
		for _, v := range s {
			if v <= handlerGoal {
				within++
			}
		}
		r.tell(fmt.Sprintf("bare system calls of StartContainer at %d, p99", c), "%s (p50 %s, %.1f %% ≤ 200 µs of %d)",
			took(s.quantile(0.99)), took(s.quantile(0.5)), 100*float64(within)/float64(max(len(s), 1)), len(s))
	}
}

// load is one run of creates.
type load struct {
	b      *bench
	rig    *rig
	p      *process
	prefix string
	into   *measured
	last   histograms // of containerd, where requests come one at a time
	mu     sync.Mutex
}

func (l *load) run(ctx context.Context, concurrency int) error {
	own, err := l.own(ctx)
	if err != nil {
		return err
	}
	remote, err := l.remote(ctx)
	if err != nil {
		return err
	}
	if l.last = nil; concurrency == 1 {
		l.last = remote
	}
	err = parallel(ctx, concurrency, (l.b.o.creates+perPod-1)/perPod, l.pod)
	if err != nil {
		return err
	}
	ownAfter, err := l.own(ctx)
	if err != nil {
		return err
	}
	remoteAfter, err := l.remote(ctx)
	if err != nil {
		return err
	}
	l.into.own.add(ownAfter.since(own))
	l.into.remote.add(remoteAfter.since(remote))
	return nil
}

// pod lives through one pod of the load.
func (l *load) pod(ctx context.Context, i int) error {
	spec := pod(l.prefix, i, perPod)
	run, err := l.rig.kube.RunPod(ctx, spec)
	if err != nil {
		return err
	}
	for _, c := range spec.Containers {
		if err := l.container(ctx, run, c.Name); err != nil {
			return err
		}
	}
	return l.rig.kube.StopPod(ctx, run)
}

func (l *load) container(ctx context.Context, run *kubelet.Running, name string) error {
	if err := l.rig.kube.StartContainer(ctx, run, name); err != nil {
		return err
	}
	if l.last == nil {
		return nil
	}
	// One request at a time: a series that grew by one observation tells that request's latency exactly.
	l.mu.Lock()
	defer l.mu.Unlock()
	now, err := l.remote(ctx)
	if err != nil {
		return err
	}
	for op, h := range now.since(l.last) {
		if h.count == 1 {
			l.into.exact[op] = append(l.into.exact[op], h.sum)
		}
	}
	l.last = now
	l.into.make = append(l.into.make, l.rig.calls.create.Seconds())
	return nil
}

// own is koord-nri's own histogram; noop has none.
func (l *load) own(ctx context.Context) (histograms, error) {
	if l.p.metrics == "" {
		return histograms{}, nil
	}
	return scrape(ctx, l.p.metrics, "http://koord-nri/metrics", ownFamily, "event", func(map[string]string) bool { return true })
}

// remote is containerd's histogram of the plugin's calls.
func (l *load) remote(ctx context.Context) (histograms, error) {
	want := map[string]string{"ours": "05-koord-rt", "noop": "05-noop", "bare": "05-noop"}[l.p.name]
	return scrape(ctx, "", l.rig.host.Metrics, remoteFamily, "operation", func(labels map[string]string) bool { return labels["plugin"] == want })
}

func judgeHandlers(r *report, ours map[int]*measured) {
	for _, e := range handlerEvents {
		for _, c := range concurrencies {
			h := ours[c].own[e.String()]
			p99 := h.quantile(0.99)
			r.judge(fmt.Sprintf("inside %s at %d, p99", e, c), "≤ 200 µs",
				fmt.Sprintf("%s (p50 %s, %.1f %% ≤ 200 µs of %d)", took(p99), took(h.quantile(0.5)), 100*h.within(handlerGoal), h.count),
				h.within(handlerGoal) >= 0.99)
		}
	}
}

func judgeRPC(r *report, ours, noop map[int]*measured) {
	for _, e := range rpcEvents {
		for _, c := range concurrencies {
			a, z := ours[c].remote[e.String()], noop[c].remote[e.String()]
			qa, qz, how := a.quantile, z.quantile, "interpolated"
			if x, y := ours[c].exact[e.String()].sorted(), noop[c].exact[e.String()].sorted(); len(x) > 0 && len(y) > 0 {
				qa, qz, how = x.quantile, y.quantile, "exact"
			}
			for _, q := range []float64{0.5, 0.99} {
				ratio := qa(q) / qz(q)
				r.judge(fmt.Sprintf("RPC %s at %d, p%g, ours / noop", e, c, q*100), "≤ 1.1",
					fmt.Sprintf("%.2f (%s / %s, %s)", ratio, took(qa(q)), took(qz(q)), how), ratio <= rpcGoal)
			}
			r.tell(fmt.Sprintf("RPC %s at %d, mean, ours / noop", e, c), "%.2f (%s / %s)", a.mean()/z.mean(), took(a.mean()), took(z.mean()))
		}
	}
}

func noteHandlers(r *report, results map[string]map[int]*measured) {
	for _, name := range contenders {
		for _, c := range concurrencies {
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
			if len(m.bare) > 0 {
				r.note("bare       %s at %-2d %-20s %s", name, c, "StartContainer", m.bare.line())
			}
			if len(m.make) > 0 {
				r.note("CRI        %s at %-2d %-20s %s", name, c, "CreateContainer", m.make.line())
			}
		}
	}
}
