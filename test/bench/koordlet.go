// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	agentGoal      = 0.005       // of a core
	floorGoal      = 3.0         // processor time / that of the reads alone
	agentMemory    = 40 << 20    // bytes
	reportInterval = time.Minute // of NodeMetric, for both agents
)

// agentOptions are those of the benchmark of the node agents.
type agentOptions struct {
	pods, containers int
	legs             string
	settle, window   time.Duration
	floor            int
}

func (o *agentOptions) flags(f *flag.FlagSet) {
	f.IntVar(&o.pods, "agent-pods", 80, "koordlet: pods, of three containers each; a kubelet takes 110")
	f.IntVar(&o.containers, "agent-containers", 3, "koordlet: containers of a pod")
	f.StringVar(&o.legs, "legs", "ours,upstream,ours,upstream", "koordlet, yield: whose agent runs, one after the other")
	f.DurationVar(&o.settle, "agent-settle", time.Minute, "koordlet: wait between an agent's start and the window")
	f.DurationVar(&o.window, "agent-window", 2*time.Minute, "koordlet: how long its processor time is counted")
	f.IntVar(&o.floor, "floor", 10, "koordlet: passes, a second apart, over the files that are read each second, after each leg")
}

// check says what cannot be done.
func (o *agentOptions) check() error {
	for _, name := range strings.Split(o.legs, ",") {
		if name != wayOurs && name != wayUpstream {
			return fmt.Errorf("-legs: %q is neither %s nor %s", name, wayOurs, wayUpstream)
		}
	}
	if o.settle < 0 || o.window < time.Second {
		return errors.New("-agent-settle must not be negative, -agent-window at least 1s")
	}
	return nil
}

// koordlet lets our node agent and upstream's look after the same pods of a real kubelet, one after the other.
func (b *bench) koordlet(ctx context.Context, r *report) (err error) {
	n, err := b.newPeersNode(ctx, r, b.o.agent.pods, b.o.agent.containers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	r.note("%s to settle, %s counted", b.o.agent.settle, b.o.agent.window)
	var legs []leg
	var cold, warm sample
	for i, name := range strings.Split(b.o.agent.legs, ",") {
		b.say("koordlet: leg %d, %s", i+1, name)
		l, err := n.leg(ctx, name)
		if err != nil {
			return fmt.Errorf("leg %d, %s: %w", i+1, name, err)
		}
		l.note(r, i+1)
		legs = append(legs, l)
		c, w, err := n.floor(ctx, b.o.agent.floor)
		if err != nil {
			return err
		}
		r.note("       reads alone, a pass a second: %s", c.line())
		r.note("       reads alone, right after it:  %s", w.line())
		cold, warm = append(cold, c...), append(warm, w...)
	}
	r.tell("reads alone, at once again (warm caches)", "%s, %s of a core", took(warm.mean()), percent(warm.mean()))
	tellAgents(r, legs, cold.mean())
	return b.binary(ctx, r, program{name: "koordlet", source: "./koordlet", unwanted: unwanted(), kind: "client-go and apimachinery"})
}

// tellAgents judges our legs, the worst of them where a goal is one; floor is the seconds that the reads of one tick take.
func tellAgents(r *report, legs []leg, floor float64) {
	ours, theirs := legsOf(legs, wayOurs), legsOf(legs, wayUpstream)
	r.tell("reads alone: all files of a tick, descriptors kept, once a second", "%s, %s of a core", took(floor), percent(floor))
	if len(ours) > 0 {
		cpu := worst(ours, leg.cpu)
		r.judge("CPU of a core, ours", "≤ 0.5 %", figures(ours, leg.cpu, percent), cpu <= agentGoal)
		r.judge("CPU, ours / reads alone", "≤ 3", figures(ours, func(l leg) float64 { return l.cores / floor }, ratio), cpu/floor <= floorGoal)
	}
	if len(theirs) > 0 {
		r.tell("CPU of a core, upstream", "%s", figures(theirs, leg.cpu, percent))
	}
	if len(ours) > 0 && len(theirs) > 0 {
		r.tell("CPU, upstream / ours (means)", "%.1f", mean(theirs, leg.cpu)/mean(ours, leg.cpu))
	}
	tellLegs(r, "memory", ours, theirs, "≤ 40 MiB", func(l leg) (string, bool) { return l.memory.String(), l.memory.rss<<10 <= agentMemory })
	tellLegs(r, "context switches/s, own will and forced", ours, theirs, "", func(l leg) (string, bool) {
		return fmt.Sprintf("%.0f + %.0f", l.voluntary, l.forced), true
	})
	tellLegs(r, "threads, open descriptors", ours, theirs, "", func(l leg) (string, bool) {
		return fmt.Sprintf("%d, %d", l.threads, l.descriptors), true
	})
	tellLegs(r, "API writes per report interval", ours, theirs, "≤ 1 + 1 a window", func(l leg) (string, bool) {
		return fmt.Sprintf("%.2f (%d in %s)", l.perReport(l.writes), l.writes, l.length.Round(time.Second)), l.quiet()
	})
	tellLegs(r, "API writes by dry run per report interval", ours, theirs, "", func(l leg) (string, bool) { return fmt.Sprintf("%.2f", l.perReport(l.dry)), true })
	tellLegs(r, "API reads per report interval, watches not counted", ours, theirs, "", func(l leg) (string, bool) {
		return fmt.Sprintf("%.2f", l.perReport(l.reads)), true
	})
	tellLegs(r, "pods in NodeMetric at the end", ours, theirs, "", func(l leg) (string, bool) { return fmt.Sprint(l.pods), true })
	for _, l := range ours {
		r.tell("koord-nri beside ours, which writes what pods get: CPU, memory", "%s, %s", percent(l.helper.cores), l.helper.memory)
	}
}

// tellLegs is a line for ours, judged when there is a goal, and one for upstream's.
func tellLegs[L any](r *report, what string, ours, theirs []L, goal string, say func(L) (text string, ok bool)) {
	for _, side := range []struct {
		name, goal string
		legs       []L
	}{{wayOurs, goal, ours}, {wayUpstream, "", theirs}} {
		var texts []string
		all := true
		for _, l := range side.legs {
			text, ok := say(l)
			texts, all = append(texts, text), all && ok
		}
		switch name, text := what+", "+side.name, strings.Join(texts, "; "); {
		case len(texts) == 0:
		case side.goal != "":
			r.judge(name, side.goal, text, all)
		default:
			r.tell(name, "%s", text)
		}
	}
}

func legsOf(legs []leg, name string) []leg {
	return slices.DeleteFunc(slices.Clone(legs), func(l leg) bool { return l.name != name })
}

func worst(legs []leg, of func(leg) float64) float64 {
	out := of(legs[0])
	for _, l := range legs {
		out = max(out, of(l))
	}
	return out
}

func mean[L any](legs []L, of func(L) float64) float64 {
	var s sample
	for _, l := range legs {
		s = append(s, of(l))
	}
	return s.mean()
}

// figures is one value per leg.
func figures(legs []leg, of func(leg) float64, say func(float64) string) string {
	var out []string
	for _, l := range legs {
		out = append(out, say(of(l)))
	}
	return strings.Join(out, "; ")
}

func percent(part float64) string { return fmt.Sprintf("%.2f %%", part*100) }

func ratio(v float64) string { return fmt.Sprintf("%.1f", v) }
