// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/burst"
)

// limited gives an LS pod one container with a limit of two CPUs.
func limited(f *decide.Facts) *workload.Pod {
	p := &workload.Pod{
		ID: "s", UID: "ls", KubeQoS: protocol.KubeBurstable, Ask: protocol.Ask{QoS: protocol.QoSLS}, QoSCgroup: "/kubepods/burstable",
		Base: workload.Resources{Quota: unit.Some(200000)},
	}
	c := &workload.Container{ID: "c1", Name: "app", Base: workload.Resources{Quota: unit.Some(200000)}}
	f.Members[1] = engine.Member{Pod: p, Containers: []*workload.Container{c}}
	return p
}

func throttle(w *window.Memory, at unit.Micros, ratio float64) {
	w.Append([]sample.Sample{
		{Subject: sample.OfContainer("c1"), Metric: sample.CPUUsage, Value: 2, At: at},
		{Subject: sample.OfContainer("c1"), Metric: sample.CPUThrottled, Value: ratio, At: at},
	})
}

// The reference's example: base 200000 and 300 % give 240000 and 288000; the pod gets what its container got.
func TestBurst(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCPUSet)
	limited(f)
	f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstCFSQuotaOnly)
	var s decide.State
	var out decide.Outcome
	for _, want := range []node.QuotaLoop{
		{Factors: map[string]unit.Fraction{"c1": 1.2}, Plus: 40000},
		{Factors: map[string]unit.Fraction{"c1": 1.44}, Plus: 88000},
	} {
		measure(w, f.Now-unit.Second/2, 14, 8, 3)
		throttle(w, f.Now-unit.Second/2, 0.5)
		s, out = decide.Step(s, f)
		if diff := cmp.Diff(map[string]node.QuotaLoop{"ls": want}, out.Dynamic.Quotas); diff != "" {
			t.Errorf("at %d: %s\n%s", f.Now, diff, out.Burst.Reason)
		}
		f.Now += unit.Second
	}
	if out.Burst.Load != burst.Idle {
		t.Errorf("pool: %s, %s", out.Burst.Load, out.Burst.Reason)
	}
	// An urgent step leaves what stands.
	f.Urgent = true
	f.Now -= unit.Second / 2
	if s, out = decide.Step(s, f); out.Dynamic.Quotas["ls"].Plus != 88000 {
		t.Errorf("after an urgent step: %+v", out.Dynamic.Quotas)
	}
	// Nobody asks any more: the quota is the kubelet's again.
	f.Urgent = false
	f.Now += unit.Second
	f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstNone)
	if _, out = decide.Step(s, f); out.Dynamic.Quotas != nil {
		t.Errorf("without a policy: %+v", out.Dynamic.Quotas)
	}
}

// A pod whose quota runs dry before its container's, which uses all of it, makes the container rise.
func TestBurstOfAPodThatIsThrottled(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		ratio float64
		want  map[string]node.QuotaLoop
	}{
		"throttled": {0.5, map[string]node.QuotaLoop{"ls": {Factors: map[string]unit.Fraction{"c1": 1.2}, Plus: 40000}}},
		"not":       {0, nil},
	} {
		f, w := facts(strategy.SuppressCPUSet)
		limited(f)
		f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstCFSQuotaOnly)
		at := f.Now - unit.Second/2
		measure(w, at, 14, 8, 3)
		throttle(w, at, 0)
		w.Append([]sample.Sample{{Subject: sample.OfPod("ls"), Metric: sample.CPUThrottled, Value: c.ratio, At: at}})
		if _, out := decide.Step(decide.State{}, f); !cmp.Equal(c.want, out.Dynamic.Quotas) {
			t.Errorf("%s: %s\n%s", what, cmp.Diff(c.want, out.Dynamic.Quotas), out.Burst.Reason)
		}
	}
}

func TestWhoBursts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*decide.Facts, *workload.Pod)
		load   burst.Load
		raises bool
	}{
		"by policy": {func(f *decide.Facts, _ *workload.Pod) {
			f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstAuto)
		}, burst.Idle, true},
		"by default": {func(*decide.Facts, *workload.Pod) {}, burst.Unknown, false},
		"by annotation": {func(_ *decide.Facts, p *workload.Pod) {
			p.Ask.CPUBurst = &protocol.CPUBurst{Policy: new(strategy.BurstAuto)}
		}, burst.Idle, true},
		"annotation against the policy": {func(f *decide.Facts, p *workload.Pod) {
			f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstAuto)
			p.Ask.CPUBurst = &protocol.CPUBurst{Policy: new(strategy.BurstNone)}
		}, burst.Unknown, false},
		"feature off": {func(f *decide.Facts, _ *workload.Pod) {
			f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstAuto)
			f.View.Modes[protocol.FeatureBurst] = node.Off
		}, burst.Unknown, false},
		// LSR pods claim 24 of 32 CPUs and use none: the 8 that are left are used to the last.
		"pool without claimed CPUs": {func(f *decide.Facts, _ *workload.Pod) {
			f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstAuto)
			f.Members = append(f.Members, member("lsr", protocol.QoSLSR, protocol.KubeGuaranteed))
			f.View.Claims.ByPod = map[string]node.PodClaim{"lsr": {LSR: topo.Range(0, 23)}}
		}, burst.Overload, false},
		// LS pods use 11 of 28, which would be too much of the 24 that are left if both sandboxes of the LSR pod counted.
		"pool beside a pod with two sandboxes": {func(f *decide.Facts, _ *workload.Pod) {
			f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstAuto)
			lsr := member("lsr", protocol.QoSLSR, protocol.KubeGuaranteed)
			f.Members = append(f.Members, lsr, lsr)
			f.View.Claims.ByPod = map[string]node.PodClaim{"lsr": {LSR: topo.Range(0, 3)}}
		}, burst.Idle, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, w := facts(strategy.SuppressCPUSet)
			tc.change(f, limited(f))
			measure(w, f.Now-unit.Second/2, 14, 8, 3)
			throttle(w, f.Now-unit.Second/2, 0.5)
			_, out := decide.Step(decide.State{}, f)
			if out.Burst.Load != tc.load && tc.load != burst.Unknown || (len(out.Dynamic.Quotas) > 0) != tc.raises {
				t.Errorf("%s: %+v; %s", out.Burst.Load, out.Dynamic.Quotas, out.Burst.Reason)
			}
		})
	}
}

// Best effort of which nobody has told yet is not what services use of their pool: now, nor on average. Without it the pool would be overloaded.
func TestBurstBesideBestEffortThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	for class, want := range map[float64]burst.Load{0: burst.Overload, 11: burst.Idle, 3: burst.Overload} {
		f, w := facts(strategy.SuppressCPUSet)
		limited(f)
		f.View.Strategy.CPUBurstStrategy.Policy = new(strategy.BurstAuto)
		for i := range unit.Micros(5) {
			at := f.Now - i*unit.Second - unit.Second/2
			measure(w, at, 22, 8, 3) // 19 that are not known best effort's, of 32
			if class > 0 {
				w.Append([]sample.Sample{{Subject: sample.OfQoS(protocol.QoSBE), Metric: sample.ClassCPU, Value: class, At: at}})
			}
		}
		throttle(w, f.Now-unit.Second/2, 0.5)
		if _, out := decide.Step(decide.State{}, f); out.Burst.Load != want {
			t.Errorf("the class uses %v: %s, want %s: %s", class, out.Burst.Load, want, out.Burst.Reason)
		}
	}
}
