// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/koordlet/internal/evict"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	policy "github.com/koord-rt/koord-rt/policy/evict"
)

// newEvictor carries evictions out by the API server. Without one they are recorded only, unless the containers of victims may
// be stopped past it.
func (d *Daemon) newEvictor(hands *evict.Hands) (*evict.Executor, error) {
	c := &d.cfg.Evict
	o := evict.Options{
		Pods: d.pods.Snapshot, Clock: boot, Node: d.cluster.name, Grace: c.GracePeriod.Std(), Interval: d.cfg.Collect.Interval.Std(),
		Hands: hands, Measure: d.uses, OnResult: d.evicted, Log: d.log,
		Stops: map[string]evict.Stops{config.StopEvicted: evict.StopEvicted, config.StopDanger: evict.StopDanger}[c.StopContainers],
	}
	state, _ := evictLoopState(c, d.cluster.client != nil)
	o.Observe = state == status.StateObserve
	if d.cluster.client != nil {
		o.API = d.cluster.client
	}
	return evict.New(o)
}

// newHands reach pods by the runtime and by their cgroups.
func (d *Daemon) newHands(version node.CgroupVersion) (*evict.Hands, error) {
	files, err := usage.Open(root.Roots{Cgroup: d.cfg.Host.CgroupRoot, Proc: d.cfg.Host.Proc}, version)
	if err != nil {
		return nil, err
	}
	return &evict.Hands{
		Bodies: d.bodies, Populated: files.Populated,
		Kill: func(ctx context.Context, container string, grace time.Duration) error {
			if err := d.list.StopWithin(ctx, container, grace); !errors.Is(err, cri.ErrNotFound) {
				return err
			}
			return nil
		},
	}, nil
}

// bodies are a pod in each sandbox that runs.
func (d *Daemon) bodies(uid string) (out []evict.Body) {
	for _, m := range d.host.Engine.Members() {
		if m.Pod.UID != uid {
			continue
		}
		b := evict.Body{Cgroup: m.Pod.Cgroup}
		for _, c := range m.Containers {
			if c.State == workload.StateRunning {
				b.Containers = append(b.Containers, c.ID)
			}
		}
		out = append(out, b)
	}
	return out
}

// alive reports whether a process of a pod runs, of those that the runtime knows.
func (d *Daemon) alive(uid string) bool { return populated(d.bodies(uid), d.populated) }

func populated(bodies []evict.Body, has func(cgroup string) (bool, error)) bool {
	return slices.ContainsFunc(bodies, func(b evict.Body) bool {
		some, err := has(b.Cgroup)
		return b.Cgroup != "" && err == nil && some
	})
}

// uses is what a pod and the node use, by the newest samples. The node's memory is read anew: the sample may be older than the end of
// a pod.
func (d *Daemon) uses(uid string) evict.Usage {
	now := boot()
	last := func(s sample.Subject, m sample.Metric) (float64, bool) {
		v, _, ok := d.window.Last(s, m, now-3*unit.Micros(d.cfg.Collect.Interval.Std().Microseconds()), now+1)
		return v, ok
	}
	cpu := func(s sample.Subject) (out unit.Measured[unit.MilliCPU]) {
		if v, ok := last(s, sample.CPUUsage); ok {
			out = unit.Got(unit.MilliCPU(v*1000 + 0.5))
		}
		return out
	}
	memory := func(s sample.Subject) (out unit.Measured[unit.Bytes]) {
		if v, ok := last(s, sample.MemoryUsage); ok {
			out = unit.Got(unit.Bytes(v))
		}
		return out
	}
	pod := sample.OfPod(uid)
	out := evict.Usage{CPU: cpu(pod), NodeCPU: cpu(sample.OfNode()), Memory: memory(pod), NodeMemory: memory(sample.OfNode())}
	if used, err := d.inUse(); err == nil {
		out.NodeMemory = unit.Got(used)
	}
	return out
}

// inUse is the memory that the node uses now, without what is free on lists of the CPUs.
func (d *Daemon) inUse() (unit.Bytes, error) {
	info, err := proc.FS(d.cfg.Host.Proc).Meminfo()
	if err != nil {
		return 0, err
	}
	free, err := d.perCPU()
	return info.Used(free), err
}

// perCPU reads what is free on lists of the CPUs.
func (d *Daemon) perCPU() (unit.Bytes, error) {
	zones, err := proc.FS(d.cfg.Host.Proc).ZoneInfo()
	return zones.PerCPU, err
}

// evicted tells what became of an eviction.
func (d *Daemon) evicted(r evict.Result) {
	now := time.Now()
	d.news.evicted(&r, now)
	if err := d.audit.Note(now, evictionEvent(&r)); err != nil {
		d.log.Warn("cannot keep events", "err", err)
	}
	if what, counts := counted(&r); counts {
		d.count.Evict(r.Feature.String(), what)
	}
	log := d.log.With("pod", r.Namespace+"/"+r.Name, "uid", r.Pod, "feature", r.Feature.String(), "outcome", r.Outcome.String(), "reason", r.Reason)
	if r.Release != nil {
		log = log.With("release", r.Release.Text(&r.Eviction))
	}
	if r.Err != nil {
		log.Warn("eviction", "err", r.Err)
		return
	}
	log.Info("eviction")
}

// counted is what metrics make of a step. A pod that the API server does not have has not been evicted, and one is counted once:
// what is stopped after it was accepted has been.
func counted(r *evict.Result) (what metrics.Eviction, counts bool) {
	switch r.Outcome {
	case evict.Accepted:
		return metrics.EvictionDone, true
	case evict.Stopped:
		return metrics.EvictionDone, r.Err != nil
	case evict.Refused:
		return metrics.EvictionRefused, true
	case evict.Failed:
		return metrics.EvictionFailed, true
	case evict.Observed:
		return metrics.EvictionObserved, true
	case evict.Gone, evict.Overdue, evict.Missing, evict.Dropped:
	}
	return 0, false
}

// victims is the executor as the agent sees it.
type victims struct{ *evict.Executor }

func (v victims) Evict(o *policy.Output) { v.Follow(o) }

func (v victims) Leaving() (leaving map[string]unit.Micros, held map[string]policy.Held) {
	return v.Executor.Leaving(), v.Held()
}

// evictFeatures are those that the configuration lets evict.
func evictFeatures(c *config.Evict) (out policy.Features) {
	switch {
	case c.Mode == config.ModeOff:
		return 0
	case c.Features == nil:
		return policy.All
	}
	for f := range policy.NumFeatures {
		for _, name := range c.Features {
			if name == f.String() {
				out = out.With(f)
			}
		}
	}
	return out
}

// evictReasons are the features that evict, as metrics name them.
func evictReasons() []string { return evictNames(policy.All) }

func evictNames(features policy.Features) (names []string) {
	for f := range policy.NumFeatures {
		if features.Has(f) {
			names = append(names, f.String())
		}
	}
	return names
}

// evictLoopState is what evictions do on this node, and why that is less than is configured; api: there is an API server.
func evictLoopState(c *config.Evict, api bool) (state, why string) {
	switch {
	case c.Mode == config.ModeObserve:
		return status.StateObserve, ""
	case c.Mode == config.ModeOff:
		return status.StateOff, ""
	case !api && c.StopContainers == config.StopDanger:
		return status.StateDegraded, "no API server, only in danger containers are stopped: "
	case !api:
		return status.StateObserve, "no API server, nobody is evicted: "
	}
	return status.StateActive, ""
}

// evictionState is what evictions do under a strategy, for NodeSLO.status: which features have something to look at, and what
// keeps others from it. Without an API server there is no NodeSLO.
func evictionState(c *config.Evict, t strategy.ResourceThresholdStrategy, noPressure bool) node.FeatureState {
	out := node.FeatureState{Feature: "eviction", State: status.StateOff}
	wanted, may := policy.Wanted(&t), evictFeatures(c)
	switch {
	case t.Enable == nil || !*t.Enable:
		out.Detail = "resourceUsedThresholdWithBE is not enabled"
	case c.Mode == config.ModeOff:
		out.Detail = "evict.mode is off on the node"
	case wanted&may == 0:
		out.Detail = strings.Join(append([]string{"switched off on the node: " + strings.Join(evictNames(wanted), ", ")}, unset(c, &t)...), "; ")
	default:
		out.State, _ = evictLoopState(c, true)
		out.Detail = strings.Join(evictNames(wanted&may), ", ")
		if off := wanted &^ may; off != 0 {
			out.Detail += "; switched off on the node: " + strings.Join(evictNames(off), ", ")
		}
		if named := unset(c, &t); len(named) > 0 {
			out.Detail += "; " + strings.Join(named, "; ")
		}
		if noPressure && (wanted & may).Has(policy.BECPUEvict) && t.CPUEvictPSIThresholdPercent != nil {
			out.Detail += "; the kernel tells no CPU pressure of BE, its satisfaction stands in"
			if out.State == status.StateActive {
				out.State = status.StateDegraded
			}
		}
	}
	return out
}
