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
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/ownnode"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/model/node"
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

// measured is what a report is made from; false before the first tick, while another koordlet may report, and while the loops hang: a report
// of now without usage would have the node taken for idle.
func (d *Daemon) measured() (report.Input, bool) { return d.measuredAt(time.Now()) }

func (d *Daemon) measuredAt(now time.Time) (report.Input, bool) {
	look := d.agent.Look()
	if look == nil || d.host.Alone() != nil || d.agent.Hung(now) != nil {
		return report.Input{}, false
	}
	view, asked := d.host.Engine.Views().Load(), d.cluster.Asked()
	in := report.Input{
		Now: now, At: boot(), Window: d.window, Object: asked.UID, Policy: asked.Collect, Pods: d.pods.Snapshot(),
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
		if f, ok := d.standing(time.Now(), &t, &said); ok {
			s.Put(f)
		}
	}
}

// standing is what is in force at now; false while there is nothing to say.
func (d *Daemon) standing(now time.Time, t *takeover, said *applied) (f report.InForce, ok bool) {
	o, look, hung := d.cluster.slo.Observed(), d.agent.Look(), d.agent.Hung(now)
	if !o.Known || d.host.Alone() != nil || look == nil && hung == nil {
		return f, false // the loops have not begun, or another's say what is in force
	}
	if look == nil {
		look = &agent.Look{} // they hang in their first step
	}
	view, features, source := d.host.Engine.Views().List()
	f = report.InForce{UID: o.Value.UID, Generation: o.Value.Generation}
	f.Features = append(slices.Clip(features), loopsInForce(&d.cfg, view, look, d.tickAlone, d.noPressure, hung)...)
	f.Problem, f.Pending, ok = t.look(now, &o.Value, source, view.Generation, follows(view.Strategy, &o.Value.Spec), d.missing)
	if !ok {
		return f, false
	}
	f.Partly = f.Problem != "" && !f.Pending
	if f.Pending && look.Unpublished != nil {
		f.Problem = "the handoff cannot be written: " + look.Unpublished.Error()
	}
	if message, attributes, news := said.news(&f, &o.Value.Spec); news {
		d.log.Info(message, attributes...)
	}
	switch {
	case hung != nil:
		f.Problem = strings.TrimPrefix(f.Problem+"; "+hung.Error(), "; ")
	case f.Problem == "" && errors.Is(o.Err, kube.ErrMalformed): // a server that is away is none: who reads this has reached it
		f.Problem = o.Err.Error()
	}
	return f, true
}

// loopsInForce are the states of evictions and loops, as far as the loops go on and what they decide is handed on.
func loopsInForce(cfg *config.Koordlet, v *node.View, l *agent.Look, tickAlone string, noPressure bool, hung error) []node.FeatureState {
	halted := ""
	if hung != nil {
		halted = hung.Error()
	}
	out := []node.FeatureState{hindered(evictionState(&cfg.Evict, v.Strategy.Threshold(), noPressure), halted)}
	for _, s := range loopStates(cfg, v, l.Facts.NoReclaim, tickAlone) {
		out = append(out, hindered(s, withheld(l), halted))
	}
	return out
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
