// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/interference"
)

// life runs the loops for a while, one tick a second. The LS pod is measured slowly, as pressure is; the BE pod uses
// 3 CPUs.
type life struct {
	f *decide.Facts
	w *window.Memory
	s decide.State
	// tick is the number of the next.
	tick int
}

// run lets seconds pass in which the LS pod stalls on a resource for a part of the time.
func (l *life) run(seconds int, metric sample.Metric, part float64) (out decide.Outcome, events []interference.Event) {
	for range seconds {
		l.f.Now += unit.Second
		at := l.f.Now - unit.Second/10
		measure(l.w, at, 14, 8, 3)
		if l.tick%10 == 0 {
			l.w.Append([]sample.Sample{{Subject: sample.OfPod("ls"), Metric: metric, Value: part * 1e6, At: at}})
		}
		l.tick++
		l.s, out = decide.Step(l.s, l.f)
		events = append(events, out.Events...)
	}
	return out, events
}

func newLife(change func(*decide.Facts)) *life {
	f, w := facts(strategy.SuppressCPUSet)
	if change != nil {
		change(f)
	}
	return &life{f: f, w: w}
}

func (l *life) baseline(signal interference.Signal) *interference.Baseline {
	for i := range l.s.Interference.Pods {
		if p := &l.s.Interference.Pods[i]; p.UID == "ls" {
			return &p.Signals[signal]
		}
	}
	return &interference.Baseline{}
}

// A disturbed pod is told, and the BE pod that uses most of the tier is held to half of its CPU time through the handoff.
func TestInterferenceHoldsTheSuspect(t *testing.T) {
	t.Parallel()
	l := newLife(nil)
	if _, events := l.run(240, sample.StallCPUSome, 0.02); len(events) != 0 {
		t.Fatalf("in calm: %+v", events)
	}
	if b := l.baseline(interference.CPUPressure); b.Count != 24 {
		t.Errorf("%d samples learned, 24 were measured", b.Count)
	}
	out, events := l.run(40, sample.StallCPUSome, 0.4)
	if len(out.Interference.Victims) != 1 || out.Interference.Victims[0].Pod != "ls" || len(out.Interference.Caps) != 1 {
		t.Fatalf("victims %+v, caps %+v", out.Interference.Victims, out.Interference.Caps)
	}
	if len(events) != 2 || !strings.Contains(events[1].Text, "suspected") || events[1].Pod != "be" {
		t.Errorf("events: %+v", events)
	}
	if got := out.Dynamic.Quotas["be"].Cap; got == 0 || got > 1500 {
		t.Errorf("held to %d of 3000 milli-CPUs: %+v", got, out.Suppress.Pods)
	}
	if _, ok := out.Dynamic.Quotas["ls"]; ok {
		t.Error("the victim is held")
	}
	// An urgent step keeps it held.
	l.f.Urgent = true
	if l.s, out = decide.Step(l.s, l.f); out.Dynamic.Quotas["be"].Cap == 0 || len(out.Events) != 0 || len(out.Interference.Victims) != 1 {
		t.Errorf("after an urgent step: %+v", out.Dynamic.Quotas)
	}
	l.f.Urgent = false
	// Suppression is switched off: nobody is held, and nobody stays accused.
	l.f.View.Strategy.ResourceUsedThresholdWithBE.Enable = new(false)
	if out, _ = l.run(1, sample.StallCPUSome, 0.4); out.Dynamic.Quotas != nil || len(l.s.Interference.Suspects) != 0 {
		t.Errorf("without suppression: %+v, %+v", out.Dynamic.Quotas, l.s.Interference.Suspects)
	}
}

// Nobody is tried where no cap would be put in force; who is disturbed is told all the same.
func TestInterferenceWithoutCaps(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		metric sample.Metric
		change func(*decide.Facts)
	}{
		"memory":          {sample.StallMemorySome, nil},
		"disk":            {sample.StallIOSome, nil},
		"allocation":      {sample.MemoryAllocLatency, nil},
		"disk latency":    {sample.DiskLatency, nil},
		"network latency": {sample.NetworkRTT, nil},
		"suppression off": {sample.StallCPUSome, func(f *decide.Facts) { f.View.Strategy.ResourceUsedThresholdWithBE.Enable = new(false) }},
		"batch observed":  {sample.StallCPUSome, func(f *decide.Facts) { f.View.Modes[protocol.FeatureBatch] = node.Observe }},
		"memory, no memory.high": {sample.StallMemorySome, func(f *decide.Facts) {
			f.View.Kernel.Knobs[plan.MemoryHigh].OK = false
			f.Window.(*window.Memory).Append([]sample.Sample{{Subject: sample.OfPod("be"), Metric: sample.MemoryWithPageCache, Value: gib, At: f.Now}})
		}},
		"opted out": {sample.StallCPUSome, func(f *decide.Facts) {
			f.Members[0].Pod.Ask.OptOut = protocol.FeatureSet(0).With(protocol.FeatureBatch)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLife(tc.change)
			l.run(240, tc.metric, 0.02)
			out, _ := l.run(40, tc.metric, 0.4)
			if len(out.Interference.Victims) != 1 || len(out.Interference.Caps) != 0 || out.Dynamic.Quotas != nil {
				t.Errorf("victims %+v, caps %+v, quotas %+v", out.Interference.Victims, out.Interference.Caps, out.Dynamic.Quotas)
			}
		})
	}
}

// The signals that are computed from two figures, and those that come as they are.
func TestInterferenceSignals(t *testing.T) {
	t.Parallel()
	l := newLife(func(f *decide.Facts) {
		f.Members[1].Containers = []*workload.Container{{ID: "c1"}, {ID: "c2"}}
	})
	l.run(1, sample.StallCPUSome, 0)
	at := l.f.Now + unit.Second - unit.Second/10
	l.w.Append([]sample.Sample{
		{Subject: sample.OfPod("ls"), Metric: sample.RunQueueDelay, Value: 2e6, At: at}, // beside 8 CPUs of running
		{Subject: sample.OfContainer("c1"), Metric: sample.Cycles, Value: 3e9, At: at},
		{Subject: sample.OfContainer("c1"), Metric: sample.Instructions, Value: 1e9, At: at},
		{Subject: sample.OfContainer("c2"), Metric: sample.Cycles, Value: 1e9, At: at},
		{Subject: sample.OfContainer("c2"), Metric: sample.Instructions, Value: 1e9, At: at},
		{Subject: sample.OfPod("ls"), Metric: sample.MemoryAllocLatency, Value: 250_000, At: at},
		{Subject: sample.OfPod("ls"), Metric: sample.DiskLatency, Value: 4000, At: at},
		{Subject: sample.OfPod("ls"), Metric: sample.NetworkRTT, Value: 300, At: at},
	})
	l.run(1, sample.StallCPUSome, 0)
	for signal, want := range map[interference.Signal]float64{
		interference.CPUDelay: 0.2, interference.CPI: 2, interference.AllocationLatency: 0.25, interference.DiskLatency: 4000,
		interference.NetworkLatency: 300,
	} {
		if b := l.baseline(signal); b.Count != 1 || max(b.Mean-want, want-b.Mean) > 1e-4 {
			t.Errorf("%s: %g of %d samples, want %g", signal, b.Mean, b.Count, want)
		}
	}
}

// A container's limit stops it without the pod's own limit being met: the kernel counts them apart. Its waiting is then told of
// nobody else.
func TestInterferenceOfItsOwnLimit(t *testing.T) {
	t.Parallel()
	l := newLife(func(f *decide.Facts) { f.Members[1].Containers = []*workload.Container{{ID: "c1"}} })
	l.run(1, sample.StallCPUSome, 0)
	at := l.f.Now + unit.Second - unit.Second/10
	l.w.Append([]sample.Sample{
		{Subject: sample.OfContainer("c1"), Metric: sample.CPUThrottled, Value: 0.4, At: at},
		{Subject: sample.OfPod("ls"), Metric: sample.CPUThrottled, Value: 0.1, At: at},
		{Subject: sample.OfPod("ls"), Metric: sample.RunQueueDelay, Value: 2e6, At: at},
		{Subject: sample.OfPod("ls"), Metric: sample.StallCPUSome, Value: 5e5, At: at},
	})
	pressed := l.baseline(interference.CPUPressure).Count
	l.run(1, sample.StallCPUSome, 0)
	for signal, want := range map[interference.Signal]int64{interference.CPUPressure: pressed, interference.CPUDelay: 0, interference.Throttled: 1} {
		if b := l.baseline(signal); b.Count != want {
			t.Errorf("%s: %d samples, want %d", signal, b.Count, want)
		}
	}
	if b := l.baseline(interference.Throttled); max(b.Mean-0.4, 0.4-b.Mean) > 1e-4 {
		t.Errorf("throttled in %g of the periods, want 0.4", b.Mean)
	}
}

// What a limit has made of a pod's pressure since its last slow turn is taken off it, whether or not it has stopped the pod in the last second. Of its delay,
// of all its tasks, that cannot be: it says nothing where the limit has stopped the pod for as long as counts, and a short stop leaves it heard.
func TestInterferenceOfItsOwnLimitOfLate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		own      float64 // µs in a second
		before   unit.Micros
		now      bool    // stopped in the last second
		pressure float64 // what is heard, -1 is nothing
		delay    float64
	}{
		"all of it":                       {own: 5e5, pressure: -1, delay: -1},
		"more than that":                  {own: 9e5, pressure: -1, delay: -1},
		"half of it":                      {own: 2.5e5, pressure: -1, delay: -1},
		"a part":                          {own: 2e5, pressure: 0.3, delay: -1},
		"a part, in the last second too":  {own: 2e5, now: true, pressure: 0.3, delay: -1},
		"the least that counts":           {own: 5e4, pressure: 0.45, delay: -1},
		"less":                            {own: 4.9e4, pressure: 0.451, delay: 0.2},
		"1 ms in ten seconds":             {own: 1e2, pressure: 0.4999, delay: 0.2},
		"1 ms in the last second":         {own: 1e3, now: true, pressure: 0.499, delay: 0.2},
		"never":                           {pressure: 0.5, delay: 0.2},
		"for how long is not known":       {now: true, pressure: -1, delay: -1},
		"of another interval, and now":    {own: 2e5, before: unit.Second, now: true, pressure: -1, delay: -1},
		"of another interval, not of now": {own: 2e5, before: unit.Second, pressure: 0.5, delay: 0.2},
	} {
		l := newLife(func(*decide.Facts) {})
		l.tick = 1 // it has no pressure of its own
		l.run(1, sample.StallCPUSome, 0)
		at := l.f.Now + unit.Second - unit.Second/10
		ls := sample.OfPod("ls")
		if tc.own > 0 {
			l.w.Append([]sample.Sample{{Subject: ls, Metric: sample.StallCPUOwn, Value: tc.own, At: at - tc.before}})
		}
		if tc.now {
			l.w.Append([]sample.Sample{{Subject: ls, Metric: sample.CPUThrottled, Value: 0.1, At: at}})
		}
		l.w.Append([]sample.Sample{
			{Subject: ls, Metric: sample.RunQueueDelay, Value: 2e6, At: at}, // beside 8 CPUs of running
			{Subject: ls, Metric: sample.StallCPUSome, Value: 5e5, At: at},
		})
		l.run(1, sample.StallCPUSome, 0)
		for signal, want := range map[interference.Signal]float64{interference.CPUPressure: tc.pressure, interference.CPUDelay: tc.delay} {
			b := l.baseline(signal)
			if heard := b.Count == 1; heard != (want >= 0) || heard && max(b.Mean-want, want-b.Mean) > 1e-4 {
				t.Errorf("%s: %s: %g of %d samples, want %g", name, signal, b.Mean, b.Count, want)
			}
		}
	}
}

// TestInterferenceHoldsMemory: whose memory makes others wait is held by memory.high, and by nothing else; when nobody waits any more it has
// everything back, also where the strategy lets go of it meanwhile.
func TestInterferenceHoldsMemory(t *testing.T) {
	t.Parallel()
	for _, metric := range []sample.Metric{sample.StallMemorySome, sample.MemoryAllocLatency} {
		const used = 10 * gib
		now := float64(used)
		charge := func(l *life) {
			one, at := sample.OfContainer("c1"), l.f.Now+unit.Second-unit.Second/10
			l.w.Append([]sample.Sample{
				{Subject: sample.OfPod("be"), Metric: sample.MemoryWithPageCache, Value: now, At: at}, {Subject: one, Metric: sample.MemoryWithPageCache, Value: now, At: at},
				{Subject: one, Metric: sample.MemoryUsage, Value: gib, At: at}, {Subject: one, Metric: sample.MemoryCharged, Value: now, At: at},
			})
		}
		l := newLife(func(f *decide.Facts) {
			f.View.Kernel.Knobs[plan.MemoryHigh].OK = true
			f.Members[0].Containers = []*workload.Container{{ID: "c1", Name: "app"}}
			f.Pace = interference.Pace{History: 2 * unit.Minute, Trial: 20 * unit.Second, Calm: 30 * unit.Second}
		})
		run := func(seconds int, harms bool) (out decide.Outcome, said string) {
			for range seconds {
				part := 0.01
				if harms && now > 0.9*used {
					part = 0.4
				}
				charge(l)
				var events []interference.Event
				out, events = l.run(1, metric, part)
				for _, e := range events {
					said += e.Pod + " " + e.Text + "\n"
				}
				if h := out.Dynamic.MemoryHigh["c1"]; h.Bytes > 0 {
					now = min(now, float64(h.Bytes)) // page cache goes at once
				} else {
					now = used
				}
			}
			return out, said
		}
		if _, said := run(240, false); said != "" {
			t.Fatalf("%v: in calm: %s", metric, said)
		}
		out, said := run(45, true)
		if h := out.Dynamic.MemoryHigh["c1"]; h.Bytes > used*8/10 || h.Bytes < used*79/100 || !strings.Contains(h.Reason, "disturbs others about memory") || !strings.Contains(said, "be guilty") {
			t.Fatalf("%v: memory.high %+v\n%s", metric, h, said)
		}
		if out.Dynamic.Quotas != nil || len(out.Evict.Evictions) != 0 {
			t.Errorf("%v: more is taken: %+v %+v", metric, out.Dynamic.Quotas, out.Evict.Evictions)
		}
		out, said = run(240, false)
		if out.Dynamic.MemoryHigh != nil || !strings.Contains(said, "be released") {
			t.Errorf("%v: at the end %+v\n%s", metric, out.Dynamic.MemoryHigh, said)
		}
		if _, said = run(45, true); !strings.Contains(said, "suspected") {
			t.Fatalf("%v: once more: %s", metric, said)
		}
		l.f.View.Modes[protocol.FeatureMemory] = node.Observe
		if out, _ = run(1, true); out.Dynamic.MemoryHigh != nil || len(l.s.Interference.Suspects) != 0 {
			t.Errorf("%v: memory QoS only observes: %+v, %+v", metric, out.Dynamic.MemoryHigh, l.s.Interference.Suspects)
		}
	}
}
