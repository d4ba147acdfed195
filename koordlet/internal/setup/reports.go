// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/koordlet/internal/evict"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/model/unit"
	policy "github.com/koord-rt/koord-rt/policy/evict"
)

// inForceEvery is how often it is looked whether what is in force has changed.
const inForceEvery = 2 * time.Second

// boot is the loops' clock for goroutines beside the tick.
func boot() unit.Micros {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // no Linux refuses the clock
	}
	return unit.Micros(ts.Nano() / 1000)
}

// newEvictor carries evictions out by the API server. Without one they are recorded only.
func (d *Daemon) newEvictor() (*evict.Executor, error) {
	o := evict.Options{
		Pods: d.pods.Snapshot, Clock: boot, Node: d.cluster.name, Grace: d.cfg.Evict.GracePeriod.Std(),
		Observe: d.cfg.Evict.Mode == config.ModeObserve || d.cluster.client == nil, OnResult: d.evicted,
	}
	if d.cluster.client != nil {
		o.API = d.cluster.client
	}
	return evict.New(o)
}

// evicted tells what became of an eviction.
func (d *Daemon) evicted(r evict.Result) {
	now := time.Now()
	d.news.evicted(&r, now)
	if err := d.audit.Note(now, evictionEvent(&r)); err != nil {
		d.log.Warn("cannot keep events", "err", err)
	}
	switch r.Outcome {
	case evict.Accepted, evict.Stopped:
		d.count.Evict(r.Feature.String(), metrics.EvictionDone)
	case evict.Refused:
		d.count.Evict(r.Feature.String(), metrics.EvictionRefused)
	case evict.Failed:
		d.count.Evict(r.Feature.String(), metrics.EvictionFailed)
	case evict.Observed:
		d.count.Evict(r.Feature.String(), metrics.EvictionObserved)
	case evict.Gone, evict.Overdue: // steps of one that has been counted
	}
	log := d.log.With("pod", r.Namespace+"/"+r.Name, "uid", r.Pod, "feature", r.Feature.String(), "outcome", r.Outcome.String(), "reason", r.Reason)
	if r.Err != nil {
		log.Warn("eviction", "err", r.Err)
		return
	}
	log.Info("eviction")
}

// victims is the executor as the agent sees it.
type victims struct{ *evict.Executor }

func (v victims) Evict(todo []policy.Eviction) {
	if len(todo) > 0 {
		v.Submit(todo)
	}
}

func (v victims) Leaving() (leaving map[string]unit.Micros, refused map[string]bool) {
	return v.Executor.Leaving(), v.Refused()
}

// reports tell the cluster what was measured and what is in force.
func (d *Daemon) reports() ([]run.Component, error) {
	if d.cluster.client == nil {
		return nil, nil
	}
	metrics, err := report.NewMetrics(report.MetricsOptions{API: d.cluster.client, Node: d.cluster.name, Input: d.measured})
	if err != nil {
		return nil, err
	}
	d.cluster.poke = metrics.Poke
	strategy := report.NewStrategy(d.cluster.client, d.cluster.name)
	return []run.Component{
		{Name: "report of metrics", Run: metrics.Run}, {Name: "report of strategy", Run: strategy.Run},
		{Name: "strategy in force", Run: func(ctx context.Context) error { return d.inForce(ctx, strategy) }},
	}, nil
}

// measured is what a report is made from; false before the first tick.
func (d *Daemon) measured() (report.Input, bool) {
	look := d.agent.Look()
	if look == nil {
		return report.Input{}, false
	}
	view := d.host.Engine.Views().Load()
	in := report.Input{
		Now: time.Now(), At: boot(), Window: d.window, Policy: d.cluster.Collect(), Pods: d.pods.Snapshot(),
		Capacity: report.Figures{CPU: unit.MilliCPU(view.Topology.All().Len() * 1000), Memory: view.MemCapacity},
		NUMA:     view.Topology.Nodes.List(), Interference: report.Interfered(&look.Outcome.Interference),
	}
	if d.predictor != nil {
		r := d.predictor.Report()
		tellPrediction(&r, &in)
	}
	for _, app := range view.Strategy.HostApplications {
		in.HostApps = append(in.HostApps, report.HostApp{Name: app.Name, Priority: app.Priority, QoS: app.QoS})
	}
	return in, true
}

// inForce follows what the engine has made of the NodeSLO.
func (d *Daemon) inForce(ctx context.Context, s *report.Strategy) error {
	tick := time.NewTicker(inForceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		o := d.cluster.slo.Observed()
		features, source := d.host.Engine.Views().List()
		if !o.Known || source != "handoff" || !follows(d.host.Engine.Views().Load().Strategy, &o.Value.Spec) {
			continue
		}
		f := report.InForce{UID: o.Value.UID, Generation: o.Value.Generation, Features: features}
		if errors.Is(o.Err, kube.ErrMalformed) { // a server that is away is none: who reads this has reached it
			f.Problem = o.Err.Error()
		}
		s.Put(f)
	}
}

// follows reports that the engine's effective strategy is the object's. It is not yet right after a change, and not at all
// while the handoff cannot be written. Texts are compared: the engine has read its own from a file.
func follows(effective, object *strategy.Spec) bool {
	want := strategy.Effective(*object)
	a, errA := json.Marshal(effective)
	b, errB := json.Marshal(&want)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
