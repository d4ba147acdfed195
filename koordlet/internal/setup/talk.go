// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine/host"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/collect"
	"github.com/koord-rt/koord-rt/koordlet/internal/evict"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/talk"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/unit"
)

// news is what the agent's parts tell of themselves, for people.
type news struct {
	mu        sync.Mutex
	runtime   string
	release   string
	be        status.BE
	evictions []status.Eviction
	// gone is when pods were evicted, of the last hour; earlier the same of earlier lives.
	gone, earlier []time.Time
}

// maxGone is how many evictions of an hour are counted: a node with so many is in need, whatever the number.
const maxGone = 1000

func (n *news) hello(runtime, release string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runtime, n.release = runtime, release
}

// evicted keeps the last evictions.
func (n *news) evicted(r *evict.Result, now time.Time) {
	outcome := map[evict.Outcome]string{
		evict.Accepted: status.OutcomeEvicted, evict.Refused: status.OutcomeRefused, evict.Failed: status.OutcomeFailed,
		evict.Stopped: status.OutcomeEvicted, evict.Observed: status.OutcomeObserved,
	}[r.Outcome]
	if outcome == "" || r.Outcome == evict.Stopped && r.Err == nil {
		return // a later step of one that has been told
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.evictions = append(n.evictions, status.Eviction{
		Time: now, Namespace: r.Namespace, Name: r.Name, UID: r.Pod, Feature: r.Feature.String(), Reason: r.Reason, Outcome: outcome,
	})
	if more := len(n.evictions) - status.MaxEvictions; more > 0 {
		n.evictions = append([]status.Eviction(nil), n.evictions[more:]...)
	}
	if outcome == status.OutcomeEvicted {
		n.gone = append(ofLastHour(n.gone, now), now)
	}
}

// recall takes up the evictions of an earlier life: the cluster lends less on a node that has evicted much, whoever runs there. How old they
// are at now, which is up after the start of boot, the time of day does not tell: it may have been set since.
func (n *news) recall(a *talk.Audit, now time.Time, up time.Duration, boot string) error {
	noted, err := a.Noted(talk.EventEviction, func(r *journal.Record) bool { return r.Age(now, up, boot) <= time.Hour })
	if err != nil {
		return fmt.Errorf("count earlier evictions: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var gone []time.Time
	for _, r := range slices.Backward(noted) {
		// As evicted counts them.
		if r.Want == evict.Accepted.String() || r.Want == evict.Stopped.String() && r.Err != "" {
			gone = append(gone, now.Add(-r.Age(now, up, boot)))
		}
	}
	n.earlier = gone // what could be read at the start stands there still
	return nil
}

// lastHour is how many pods were evicted in the last hour.
func (n *news) lastHour(now time.Time) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return min(len(ofLastHour(n.earlier, now))+len(ofLastHour(n.gone, now)), maxGone)
}

// ofLastHour are the newest of the last hour.
func ofLastHour(gone []time.Time, now time.Time) []time.Time {
	old := func(at time.Time) bool { return now.Sub(at) > time.Hour }
	out := slices.DeleteFunc(slices.Clone(gone), old)
	return out[max(len(out)-maxGone, 0):]
}

// extend adds what the agent tells to the host.
func (d *Daemon) extend(states func() []collect.State) error {
	every := func(t time.Duration) unit.Micros { return unit.Micros(t.Microseconds()) }
	if err := d.countTo(d.host.Registry()); err != nil {
		return err
	}
	t := talk.New(talk.Options{
		Window: d.window, Pods: d.pods, Facts: func() *talk.Facts { return d.facts(states, d.now()) }, Now: boot,
		Interval: every(d.cfg.Collect.Interval.Std()), SlowInterval: every(d.cfg.Collect.SlowInterval.Std()),
	})
	return d.host.Extend(host.Extension{
		Collectors: []prometheus.Collector{t}, Agent: t.Status, Routes: talk.Routes(talk.RouteOptions{RunDir: d.cfg.RunDir, Profiles: d.cfg.Pprof}),
		Hung: func() error { return d.agent.Hung(d.now()) }, Dead: func() error { return d.agent.Dead(d.now()) },
	})
}

// countTo makes the counters and connects who counts; before anything runs.
func (d *Daemon) countTo(reg prometheus.Registerer) (err error) {
	d.count, err = metrics.NewAgent(reg, metrics.AgentNames{
		Node: d.cluster.name, Loops: []string{loopTick, loopUrgent}, Features: evictReasons(), Objects: written(),
	})
	if err != nil {
		return err
	}
	d.cluster.answered, d.cluster.wrote = d.count.KubeletAnswered, d.count.APIWrite
	return nil
}

// written are what the agent writes to the API server; of pods, evictions and deletions.
func written() []string {
	return []string{kube.NodeMetrics.Plural, kube.NodeSLOs.Plural, kube.NodeResourceTopologies.Plural, kube.Pods.Plural}
}

// Loops as metrics name them: the whole of a tick, and of a step between two.
const (
	loopTick   = "tick"
	loopUrgent = "pressure"
)

// ticked counts a step and notes what it brought.
func (d *Daemon) ticked(l *agent.Look) {
	d.countStep(l)
	if !l.Facts.Urgent {
		d.evictor.Danger(l.Outcome.Evict.Danger != "")
	}
	d.happened(l)
}

// facts is what only the agent's parts know, as it is now.
func (d *Daemon) facts(states func() []collect.State, now time.Time) *talk.Facts {
	v := d.host.Engine.Views().Load()
	f := &talk.Facts{
		Node: d.cluster.name, Started: d.started, Version: d.version,
		Capacity:   amount.Amounts{CPU: unit.MilliCPU(v.Topology.All().Len() * 1000), Memory: v.MemCapacity},
		Sources:    d.sources(),
		SharePools: v.Dynamic.SharePools, BESharePools: v.Dynamic.BESharePools,
		NUMA: v.Topology.Nodes.List(), HostApps: hostApps(v.Strategy.HostApplications), Goroutines: runtime.NumGoroutine(),
		NodeSLO: d.cluster.owned(),
	}
	if v.Kernel.RDT.Mon {
		f.CacheGroups, f.CacheDomains = []string{"", "LSR", "LS", "BE"}, v.Kernel.RDT.L3IDs
	}
	for _, s := range states() {
		f.Collectors = append(f.Collectors, status.Source{Name: s.Collector, State: s.Support, Reason: s.Detail})
	}
	f.Collectors = append(f.Collectors, roomState("window", d.window.Full(boot())))
	if d.pressure != nil {
		_, refused := d.pressure.State()
		f.Collectors = append(f.Collectors, roomState("pressure-triggers", refused))
	}
	if n := d.cluster.Node(); n != nil {
		f.Capacity, f.Allocatable = n.Capacity, &n.Allocatable
	}
	f.Loops = barredLoops(d.host.Unrecorded(), d.host.Alone(), d.audit.Closed(), now)
	if d.predictor != nil {
		r := d.predictor.Report()
		f.Loops = append(f.Loops, predictLoop(&r, boot(), now))
		if r.Known {
			f.Prediction = &r.Prediction
		}
	}
	d.news.mu.Lock()
	defer d.news.mu.Unlock()
	f.Runtime, f.RuntimeVersion = d.news.runtime, d.news.release
	f.Evictions = d.news.evictions[:len(d.news.evictions):len(d.news.evictions)]
	look, hung := d.agent.Look(), d.agent.Hung(now)
	if look == nil && hung != nil {
		f.Loops = halted(f.Loops, hung, now)
		return f
	}
	if look == nil {
		f.Loops = append(f.Loops, status.Loop{Name: "loops", State: status.StateDegraded, At: d.started, Err: "the runtime at " + d.cfg.RuntimePath() +
			" has not listed its containers yet: nothing is decided or reported until it has"})
		return f
	}
	d.news.be = talk.Suppressed(d.news.be, &look.Outcome.Suppress, look.Wall)
	f.BE = d.news.be
	f.Loops = halted(append(loops(&d.cfg, d.cluster.client != nil, d.tickAlone, look), f.Loops...), hung, now)
	f.Generations = talk.Generations(look.Published)
	f.Scaled, f.Victims, f.Network = scaled(look), disturbed(look), traffic(look)
	return f
}

// roomState tells of a part that takes a bounded number of subjects, and is degraded while it takes no more.
func roomState(name string, full error) status.Source {
	if full == nil {
		return status.Source{Name: name, State: status.StateActive}
	}
	return status.Source{Name: name, State: status.StateDegraded, Reason: full.Error()}
}

// hostApps are those of the strategy, as metrics name them.
func hostApps(list []strategy.HostApplication) []talk.HostApp {
	var out []talk.HostApp
	for i := range list {
		qos, _ := protocol.ParseQoS(list[i].QoS)                     // what is no class counts as none
		priority, _ := protocol.ParsePriorityClass(list[i].Priority) // the same
		out = append(out, talk.HostApp{Name: list[i].Name, Priority: priority, QoS: qos})
	}
	return out
}

// sources are the objects that are followed and told, each with why it is not.
func (d *Daemon) sources() []status.Source {
	return slices.Concat(
		d.cluster.sources(), reportSources(d.metrics, d.strategy), topologySource(d.cfg.APIServer.Topology, d.topology, d.whyUnmade()),
		optionsSource(d.topology != nil, d.kubelet != nil, d.options()), ownNodeSource(d.ownNode),
	)
}
