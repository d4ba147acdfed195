// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
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

// drifted are values of ours that somebody has written over, and that wait for systemd to be asked about them.
type drifted struct {
	mu   sync.Mutex
	todo []apply.Result
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

// askLimit bounds what systemd may take to tell what it holds.
const askLimit = 2 * time.Second

// Attribute records, counts and logs who may have written over each value that has strayed. It must come before the units
// are told our values, and never stands in a handler's way.
func (g *Engine) Attribute(ctx context.Context, results []apply.Result) {
	var strays []apply.Stray
	for i := range results {
		if r := &results[i]; r.Strayed {
			strays = append(strays, apply.Stray{Setting: r.Setting, Found: r.Before, Claims: g.claimsOn(&r.Setting)})
		}
	}
	if len(strays) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	gen := g.views.Load().Generation
	records := make([]journal.Record, 0, len(strays))
	for i, by := range g.o.Kernel.Sources(ctx, strays) {
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
