// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Goals of koord-manager.
const (
	goalNodes, goalPods = 5000, 50_000

	managerCores  = 1.0
	managerMemory = 500 << 20 // bytes
	// quietWrites are API writes per node and hour, where a small difference is written after defaultAfter.
	quietWrites  = 2.0
	defaultAfter = 300 * time.Second
	spreadGoal   = 30 * time.Second // from the ConfigMap to the NodeSLO of every node
	hookGoal     = 0.005            // seconds, p99
)

// managerOptions are those of the benchmark of the managers.
type managerOptions struct {
	nodes, pods, reported int
	every, settle, window time.Duration
	after                 time.Duration
	wobble                float64
	legs                  string
	hooks, hookRate       int
}

func (o *managerOptions) flags(f *flag.FlagSet) {
	f.IntVar(&o.nodes, "nodes", goalNodes, "manager, webhooks: simulated nodes")
	f.IntVar(&o.pods, "pods", goalPods, "manager, webhooks: pods on them, as objects")
	f.IntVar(&o.reported, "reported-pods", 30, "manager: pods of which a node's NodeMetric tells")
	f.DurationVar(&o.every, "report-every", time.Minute, "manager: time between two NodeMetrics of a node")
	f.DurationVar(&o.settle, "manager-settle", 90*time.Second, "manager: wait between the last NodeSLO and the window")
	f.DurationVar(&o.window, "manager-window", 6*time.Minute, "manager: how long processor time and writes are counted")
	f.DurationVar(&o.after, "update-after", defaultAfter, "manager: updateTimeThresholdSeconds; with less, a shorter window sees what is written after it, and the goal moves along")
	f.Float64Var(&o.wobble, "wobble", 0.01, "manager: part by which a node's usage differs from report to report")
	f.StringVar(&o.legs, "manager-legs", "ours,upstream,ours,upstream", "manager: whose manager runs, one after the other")
	f.IntVar(&o.hooks, "hooks", 6000, "webhooks: pods sent to them")
	f.IntVar(&o.hookRate, "hook-rate", 200, "webhooks: pods a second")
}

// check says what cannot be done.
func (o *managerOptions) check() error {
	for name := range strings.SplitSeq(o.legs, ",") {
		if name != wayOurs && name != wayUpstream {
			return fmt.Errorf("-manager-legs: %q is neither %s nor %s", name, wayOurs, wayUpstream)
		}
	}
	switch {
	case o.nodes < 1 || o.pods < 0 || o.reported < 1 || o.hooks < 1 || o.hookRate < 1:
		return errors.New("-nodes, -reported-pods, -hooks and -hook-rate must be at least 1, -pods not negative")
	case o.every < time.Second || o.window < time.Second || o.after < time.Second:
		return errors.New("-report-every, -manager-window and -update-after must be at least 1s")
	case o.settle < o.every:
		return errors.New("-manager-settle must be at least -report-every: until then nodes report for the first time, and all of them are written")
	case o.wobble < 0 || o.wobble >= 1:
		return errors.New("-wobble must be at least 0 and less than 1")
	}
	return nil
}

// needsUpstream reports whether upstream's manager has a leg.
func (o *managerOptions) needsUpstream() bool { return strings.Contains(o.legs, wayUpstream) }

// manager lets our manager and upstream's look after the same cluster, one after the other. Its nodes and pods are objects; what nodes
// report comes from here.
func (b *bench) manager(ctx context.Context, r *report) (err error) {
	var more []string
	if b.o.manager.needsUpstream() {
		more = append(more, parts.UpstreamManager)
	}
	w, err := b.newWorld(ctx, r.name, more...)
	if err != nil {
		return err
	}
	defer func() {
		b.say("manager: remove the cluster")
		err = errors.Join(err, w.close())
	}()
	versions, err := lab.Versions()
	if err != nil {
		return err
	}
	o := b.o.manager
	r.note("upstream's koord-manager %s, kube-apiserver %s; %d nodes, %d pods, NodeMetrics of %d pods every %s, usage wobbles by %s; "+
		"updateTimeThresholdSeconds %.0f; %s to settle, %s counted", versions["UPSTREAM_KOORDINATOR"], versions["KUBERNETES"], o.nodes, o.pods, o.reported,
		o.every, percent(o.wobble), o.after.Seconds(), o.settle, o.window)
	if err := w.fill(ctx); err != nil {
		return err
	}
	var legs []term
	for i, name := range strings.Split(o.legs, ",") {
		b.say("manager: leg %d, %s", i+1, name)
		t, err := w.term(ctx, name)
		if err != nil {
			return fmt.Errorf("leg %d, %s: %w", i+1, name, err)
		}
		t.note(r, i+1)
		legs = append(legs, t)
	}
	tellManagers(r, o, legs)
	return nil
}

// tellManagers judges our legs, the worst of them where a goal is one.
func tellManagers(r *report, o managerOptions, legs []term) {
	var ours, theirs []term
	for _, t := range legs {
		if t.name == wayOurs {
			ours = append(ours, t)
		} else {
			theirs = append(theirs, t)
		}
	}
	size := fmt.Sprintf("%d nodes, %d pods", o.nodes, o.pods)
	sides := func(what, goal string, say func(term) (string, bool)) {
		if o.nodes < goalNodes || o.pods < goalPods {
			goal = "" // it is one of a cluster of that size
		}
		tellLegs(r, what, ours, theirs, goal, say)
	}
	r.tell("size of the cluster, reports", "%s; %d reports a minute wanted", size, int(float64(o.nodes)/o.every.Minutes()))
	sides("reports a minute that arrived", "", func(t term) (string, bool) { return fmt.Sprintf("%.0f", t.perMinute()), true })
	sides("CPU of a core", "≤ 1", func(t term) (string, bool) { return fmt.Sprintf("%.3f", t.cores), t.cores <= managerCores })
	sides("CPU per report", "", func(t term) (string, bool) { return took(t.perReport()), true })
	sides("CPU from start to the first NodeSLO of every node", "", func(t term) (string, bool) { return took(t.startCPU), true })
	sides("memory", "≤ 500 MiB", func(t term) (string, bool) { return t.memory.String(), t.memory.peak<<10 <= managerMemory })
	goal := fmt.Sprintf("≤ %.3g", quietWrites*float64(defaultAfter)/float64(o.after))
	sides("API writes per node and hour, its lease apart", goal, func(t term) (string, bool) {
		per := t.perNodeHour(o.nodes)
		return fmt.Sprintf("%.2f (%d in %s)", per, t.aboutNodes(), t.length.Round(time.Second)), per*float64(o.after)/float64(defaultAfter) <= quietWrites
	})
	sides("NodeSLO of every node after the start", "", func(t term) (string, bool) { return took(t.first.Seconds()), true })
	sides("NodeSLO of every node after a change", "≤ 30 s", func(t term) (string, bool) { return took(t.spread.Seconds()), t.spread <= spreadGoal })
	tellLegs(r, "NodeSLO of every node, the same writes by themselves", ours, nil, "", func(t term) (string, bool) { return took(t.bare.Seconds()), true })
	sides("API server beside it, of a core", "", func(t term) (string, bool) { return fmt.Sprintf("%.2f", t.server.cores), true })
	if len(ours) > 0 && len(theirs) > 0 {
		r.tell("CPU per report, upstream / ours (means)", "%.1f", mean(theirs, term.perReport)/mean(ours, term.perReport))
	}
}
