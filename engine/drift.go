// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/drift"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// hearsay is how long a value that nobody's claim explains waits for news of a request before someone is told to have written it: koordlet asks
// the kubelet for its pods every ten seconds by default, and the kubelet writes what it has been asked for before that.
const hearsay = 15 * time.Second

// drifted are values of ours that somebody has written over, and that wait for systemd to be asked about them.
type drifted struct {
	mu   sync.Mutex
	todo []apply.Result
	// unheard wait for news of who it was, in the order in which they were found.
	unheard []unheard
}

// unheard is a value that nobody's claim explained when it was found.
type unheard struct {
	apply.Result
	found time.Time
}

// add keeps those of the results that have strayed and reports whether there are any.
func (d *drifted) add(results []apply.Result) bool {
	some := false
	for i := range results {
		if results[i].Strayed {
			d.mu.Lock()
			d.todo = append(d.todo, results[i])
			d.mu.Unlock()
			some = true
		}
	}
	return some
}

func (d *drifted) take() []apply.Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.todo
	d.todo = nil
	return out
}

// hold keeps a value until there has been time to hear of who wrote it.
func (d *drifted) hold(u unheard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unheard = append(d.unheard, u)
}

// release gives back what was found at a moment or before it.
func (d *drifted) release(until time.Time) (out []unheard) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := slices.IndexFunc(d.unheard, func(u unheard) bool { return u.found.After(until) })
	if n < 0 {
		n = len(d.unheard)
	}
	out, d.unheard = d.unheard[:n:n], d.unheard[n:]
	return out
}

// askLimit bounds what systemd may take to tell what it holds.
const askLimit = 2 * time.Second

// Attribute records, counts and logs who may have written over each value that has strayed. It must come before the units
// are told our values, and never stands in a handler's way. What may be explained by a request that has not been heard of yet waits.
func (g *Engine) Attribute(ctx context.Context, results []apply.Result) {
	now := g.o.Now()
	var list []unheard
	for i := range results {
		if results[i].Strayed {
			list = append(list, unheard{results[i], now})
		}
	}
	g.attribute(ctx, list, g.mayHear)
}

// hear tells of what has waited for long enough; last is the end, at which nothing waits on. Systemd is asked once more, so not before.
func (g *Engine) hear(ctx context.Context, last bool) {
	until := g.o.Now()
	if !last {
		until = until.Add(-hearsay)
	}
	g.attribute(ctx, g.drifted.release(until), func(*plan.Setting) bool { return false })
}

// mayHear reports whether a request that koordlet has still to hear of may explain a value: nobody tells it of updates, and it is one that
// kubelet and runtime write.
func (g *Engine) mayHear(s *plan.Setting) bool {
	return g.o.UpdatesUntold && ofRequests.Has(s.Knob) && (s.Target.Level == plan.LevelContainer || s.Target.Level == plan.LevelPod)
}

// attribute tells who wrote each value. One that nobody's claim explains is held where that may change.
func (g *Engine) attribute(ctx context.Context, list []unheard, mayHear func(*plan.Setting) bool) {
	if len(list) == 0 {
		return
	}
	strays := make([]apply.Stray, 0, len(list))
	for i := range list {
		u := &list[i]
		strays = append(strays, apply.Stray{Setting: u.Setting, Found: u.Before, Claims: g.claimsOn(&u.Setting)})
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	gen, waits := g.views.Load().Generation, false
	records := make([]journal.Record, 0, len(strays))
	for i, by := range g.o.Kernel.Sources(ctx, strays) {
		if by == drift.Someone && mayHear(&list[i].Setting) {
			g.drifted.hold(list[i])
			waits = true
			continue
		}
		s := &strays[i].Setting
		rec := g.record(s, journal.ViaDrift, gen)
		rec.Found, rec.Source = strays[i].Found.String(), by.String()
		records = append(records, rec)
		g.m.Drift(s.Knob, by)
		if ok, held := g.limiter.Allow(s.Target.String(), "drift of "+s.Knob.String()+" by "+rec.Source); ok {
			g.log.Info("written over by somebody else", "target", s.Target.String(), "knob", s.Knob.String(), "found", rec.Found, "want", rec.Want,
				"source", rec.Source, "suppressed", held)
		}
	}
	g.append(records...)
	if waits {
		time.AfterFunc(hearsay, g.units.rouse)
	}
}

// claimsOn are the values that the runtime or the kubelet would write for a setting: what was asked for, and what the
// container's specification has of ours.
func (g *Engine) claimsOn(s *plan.Setting) (out []drift.Claim) {
	switch s.Target.Level {
	case plan.LevelContainer:
		e, ok := g.reg.container(s.Target.Container)
		if !ok {
			return nil
		}
		if v, ok := asks(s.Knob, &e.c.Base); ok {
			out = append(out, drift.Claim{By: drift.Runtime, Value: v})
		}
		if v, ok := inSpec(&e, s); ok {
			out = append(out, drift.Claim{By: drift.Runtime, Value: v})
		}
	case plan.LevelPod:
		for _, pod := range g.reg.podList() {
			if pod.p.Cgroup != s.Target.Cgroup {
				continue
			}
			if v, ok := asks(s.Knob, &pod.p.Base); ok {
				out = append(out, drift.Claim{By: drift.Kubelet, Value: v})
			}
		}
	case plan.LevelNode, plan.LevelGroup, plan.LevelQoS:
		// What the kubelet gives its QoS directories is not known.
	}
	return out
}

// ofRequests are the knobs of asks that kubelets write with every update.
var ofRequests = plan.KnobSet(plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.MemoryLimit, plan.CPUSetCPUs, plan.CPUSetMems)

// asks is what a request says about a knob; ok is false where it says nothing.
func asks(k plan.Knob, base *workload.Resources) (plan.Value, bool) {
	if v, ok := askedFor(k, base); ok {
		return v, true
	}
	number := func(o unit.Opt) (plan.Value, bool) { return plan.Int(o.V), o.Set }
	list := func(l string) (plan.Value, bool) { return plan.Text(l), l != "" }
	switch k {
	case plan.CPUShares:
		return number(base.Shares)
	case plan.CPUQuota:
		return number(base.Quota)
	case plan.CPUPeriod:
		return number(base.Period)
	case plan.MemoryLimit:
		return number(base.MemoryLimit)
	case plan.CPUSetCPUs:
		return list(base.CPUs)
	case plan.CPUSetMems:
		return list(base.Mems)
	}
	return plan.Value{}, false
}

// inSpec is what a container's specification has of ours for a setting.
func inSpec(e *entry, s *plan.Setting) (plan.Value, bool) {
	m := e.mark.get()
	if m == nil || s.Key != "" {
		return plan.Value{}, false
	}
	text, _, ok := strings.Cut(m.Set[s.Knob.String()], " ") // "value owner"
	if !ok || s.Knob.Info().Text {
		return plan.Text(text), ok
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return plan.Int(n), err == nil
}
