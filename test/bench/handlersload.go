// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

const (
	perPod       = 2 // containers of a pod of the load
	ownFamily    = "koord_rt_nri_event_duration_seconds"
	remoteFamily = "containerd_nri_plugin_latency_seconds"
)

// bareWork is the arithmetic of the bare plugin in CreateContainer: what koord-nri's handler takes in the median where requests
// come close together, half of that where they do not.
const bareWork = 30 * time.Microsecond

// load is one run of pods in waves: a wave takes every step with all its pods at once, and the next step begins when the last
// pod has taken it. Without that, of 64 pods under way only a few are at the same step, most wait for their runc.
type load struct {
	rig    *rig
	ours   *process          // nil where it is no contender
	labels map[string]string // contest.labels
	prefix string
	wave   int // pods at once
	into   map[string]*measured
	crowds []int                   // the most requests for CreateContainer under way, by wave
	last   map[string]histograms   // of containerd, where requests come one at a time
	steps  [numSteps]time.Duration // of all waves
}

// The steps of a wave.
const (
	stepRun = iota
	stepCreate
	stepStart
	stepResize
	stepStop
	numSteps
)

// took adds the time since begin to a step.
func (l *load) took(step int, begin time.Time) { l.steps[step] += time.Since(begin) }

func (l *load) run(ctx context.Context, pods int) error {
	own, err := l.own(ctx)
	if err != nil {
		return err
	}
	remote, err := l.remote(ctx)
	if err != nil {
		return err
	}
	if l.last = nil; l.wave == 1 {
		l.last = remote
	}
	for first := 0; first < pods; first += l.wave {
		if err := l.pods(ctx, first); err != nil {
			return err
		}
	}
	ownAfter, err := l.own(ctx)
	if err != nil {
		return err
	}
	remoteAfter, err := l.remote(ctx)
	if err != nil {
		return err
	}
	if l.ours != nil {
		round := ownAfter.since(own)
		l.into["ours"].own.add(round)
		l.into["ours"].rounds.ofHistograms(round)
	}
	for name, m := range l.into {
		m.remote.add(remoteAfter[name].since(remote[name]))
	}
	return nil
}

// pods lives through one wave.
func (l *load) pods(ctx context.Context, first int) error {
	runs := make([]*kubelet.Running, l.wave)
	all := func(step func(ctx context.Context, i int) error) error { return parallel(ctx, l.wave, l.wave, step) }
	each := func(step func(ctx context.Context, run *kubelet.Running, name string) error) error {
		return all(func(ctx context.Context, i int) error {
			for _, c := range runs[i].Pod.Containers {
				if err := step(ctx, runs[i], c.Name); err != nil {
					return err
				}
				if err := l.one(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	kube := l.rig.kube
	begin := time.Now()
	err := all(func(ctx context.Context, i int) (err error) {
		runs[i], err = kube.RunPod(ctx, pod(l.prefix, first+i, perPod))
		return err
	})
	if err != nil {
		return err
	}
	l.took(stepRun, begin)
	begin = time.Now()
	l.rig.calls.most()
	err = each(func(ctx context.Context, run *kubelet.Running, name string) error {
		_, err := kube.CreateContainer(ctx, run, name)
		return err
	})
	if err != nil {
		return err
	}
	l.crowds = append(l.crowds, l.rig.calls.most())
	l.took(stepCreate, begin)
	begin = time.Now()
	if err := each(kube.StartContainer); err != nil {
		return err
	}
	l.took(stepStart, begin)
	begin = time.Now()
	for _, to := range []kubelet.Resources{resized(), lsResources()} {
		if err := all(func(ctx context.Context, i int) error { return resize(ctx, kube, runs[i], to) }); err != nil {
			return err
		}
	}
	l.took(stepResize, begin)
	begin = time.Now()
	defer func() { l.took(stepStop, begin) }()
	return all(func(ctx context.Context, i int) error { return kube.StopPod(ctx, runs[i]) })
}

// resize gives the containers of an LS pod other resources; a BE pod has no native ones to change.
func resize(ctx context.Context, kube *kubelet.Kubelet, run *kubelet.Running, to kubelet.Resources) error {
	change := map[string]kubelet.Resources{}
	for _, c := range run.Pod.Containers {
		if len(c.Resources.Limits) > 0 {
			change[c.Name] = to
		}
	}
	if len(change) == 0 {
		return nil
	}
	return kube.ResizePod(ctx, run, change)
}

// one keeps what the request before it took where requests come one at a time: a series that has grown by one observation
// tells that request's latency exactly.
func (l *load) one(ctx context.Context) error {
	if l.last == nil {
		return nil
	}
	now, err := l.remote(ctx)
	if err != nil {
		return err
	}
	for name, m := range l.into {
		for op, h := range now[name].since(l.last[name]) {
			if h.count == 1 {
				m.exact[op] = append(m.exact[op], h.sum)
			}
		}
	}
	l.last = now
	return nil
}

// own is koord-nri's own histogram.
func (l *load) own(ctx context.Context) (histograms, error) {
	if l.ours == nil {
		return nil, nil
	}
	return scrape(ctx, l.ours.metrics, "http://koord-nri/metrics", ownFamily, "event", func(map[string]string) bool { return true })
}

// remote is containerd's histogram of the plugins' calls, by contender.
func (l *load) remote(ctx context.Context) (map[string]histograms, error) {
	all, err := scrapeBy(ctx, "", l.rig.host.Metrics, remoteFamily, func(labels map[string]string) string {
		return labels["plugin"] + "/" + labels["operation"]
	})
	if err != nil {
		return nil, err
	}
	out := map[string]histograms{}
	for name := range l.into {
		out[name] = histograms{}
	}
	for key, h := range all {
		plugin, op, _ := strings.Cut(key, "/")
		if name := l.labels[plugin]; name != "" {
			out[name].add(histograms{op: h})
		}
	}
	return out, nil
}

// readBare sorts what the bare plugin wrote in a round by the concurrency at whose time it was: at[i] from began[i] on.
func readBare(path string, at []int, began []time.Time, into map[int]*measured) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read what the bare work took: %w", err)
	}
	rounds := map[int]map[string]sample{}
	for _, c := range at {
		rounds[c] = map[string]sample{}
	}
	for line := range strings.Lines(string(data)) {
		var event string
		var when, took int64
		if _, err := fmt.Sscan(line, &event, &when, &took); err != nil {
			return fmt.Errorf("read what the bare work took: line %q: %w", line, err)
		}
		for i := len(began) - 1; i >= 0; i-- {
			if when >= began[i].UnixNano() {
				rounds[at[i]][event] = append(rounds[at[i]][event], float64(took)/1e9)
				break
			}
		}
	}
	for c, round := range rounds {
		for event, s := range round {
			into[c].bare[event] = append(into[c].bare[event], s...)
		}
		into[c].rounds.ofSamples(round)
	}
	return nil
}
