// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/ownnode"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/model/unit"
)

// inForceEvery is how often it is looked whether what is in force has changed.
const inForceEvery = 2 * time.Second

// boot is the loops' clock for goroutines beside the tick.
func boot() unit.Micros { return unit.Micros(boottime.Now().Microseconds()) }

// reports tell the cluster what was measured and what is in force, and find out for which nodes it would take that.
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
	d.cluster.back = strategy.Back
	d.metrics, d.strategy = metrics, strategy
	d.herald = report.NewHerald(d.cluster.client, d.cluster.name, d.pods.Snapshot, d.log)
	d.ownNode = ownnode.New(d.cluster.client, d.cluster.name, d.log)
	return []run.Component{
		{Name: "own node", Run: d.ownNode.Run},
		{Name: "report of metrics", Run: metrics.Run}, {Name: "report of strategy", Run: strategy.Run}, {Name: "events", Run: d.herald.Run},
		{Name: "strategy in force", Run: func(ctx context.Context) error { return d.inForce(ctx, strategy) }},
	}, nil
}

// reportSources say whether the NodeMetric's and the NodeSLO's status could be written last, and why not; nothing without an API server.
func reportSources(m *report.Metrics, s *report.Strategy) []status.Source {
	if m == nil || s == nil {
		return nil
	}
	metric := m.State()
	return []status.Source{
		source("nodemetric-report", absent("NodeMetric", metric.Err), metric.Written), source("nodeslo-status", absent("NodeSLO", s.Err()), time.Time{}),
	}
}

// absent says of an object that is not there who makes it: koordlet never does.
func absent(kind string, err error) error {
	if errors.Is(err, kube.ErrNotFound) {
		return fmt.Errorf("this node has no %s, which koord-manager makes: %w", kind, err)
	}
	return err
}

// measured is what a report is made from; false before the first tick, and while another koordlet may report.
func (d *Daemon) measured() (report.Input, bool) {
	look := d.agent.Look()
	if look == nil || d.host.Alone() != nil {
		return report.Input{}, false
	}
	view, asked := d.host.Engine.Views().Load(), d.cluster.Asked()
	in := report.Input{
		Now: time.Now(), At: boot(), Window: d.window, Object: asked.UID, Policy: asked.Collect, Pods: d.pods.Snapshot(),
		Capacity: report.Figures{CPU: unit.MilliCPU(view.Topology.All().Len() * 1000), Memory: view.MemCapacity},
		NUMA:     view.Topology.Nodes.List(), Interference: report.Interfered(&look.Outcome.Interference),
	}
	in.Evicted = d.news.lastHour(in.Now)
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
	t := takeover{proven: 3 * d.lookEvery()}
	var said applied
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		o := d.cluster.slo.Observed()
		if !o.Known {
			continue
		}
		view, features, source := d.host.Engine.Views().List()
		f := report.InForce{UID: o.Value.UID, Generation: o.Value.Generation}
		f.Features = append(slices.Clip(features), evictionState(&d.cfg.Evict, view.Strategy.Threshold(), d.noPressure))
		look := d.agent.Look()
		if look == nil || d.host.Alone() != nil {
			continue // the loops have not begun, or another's say what is in force
		}
		f.Features = append(f.Features, loopStates(&d.cfg, view, look.Facts.NoReclaim, d.tickAlone)...)
		var told bool
		f.Problem, f.Pending, told = t.look(time.Now(), &o.Value, source, view.Generation, follows(view.Strategy, &o.Value.Spec), d.missing)
		if !told {
			continue
		}
		f.Partly = f.Problem != "" && !f.Pending
		if f.Pending && look.Unpublished != nil {
			f.Problem = "the handoff cannot be written: " + look.Unpublished.Error()
		}
		if message, attributes, ok := said.news(&f, &o.Value.Spec); ok {
			d.log.Info(message, attributes...)
		}
		if f.Problem == "" && errors.Is(o.Err, kube.ErrMalformed) { // a server that is away is none: who reads this has reached it
			f.Problem = o.Err.Error()
		}
		s.Put(f)
	}
}

// sourceHandoff is the engine's word for a strategy that koordlet has handed on.
const sourceHandoff = "handoff"

// follows reports that the engine's effective strategy is the object's. It is not yet right after a change, and not at all
// while the handoff cannot be written. Texts are compared: the engine has read its own from a file.
func follows(effective, object *strategy.Spec) bool {
	want := strategy.Effective(*object)
	a, errA := json.Marshal(effective)
	b, errB := json.Marshal(&want)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
