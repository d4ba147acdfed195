// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

const now = 100 * unit.Second

// machine has two NUMA nodes of 16 CPUs, two threads a core.
func machine() *topo.Topology {
	var cpus []topo.CPU
	for i := range 32 {
		cpus = append(cpus, topo.CPU{ID: i, Core: i / 2, Socket: i / 16, Node: i / 16, L3: i / 16})
	}
	return topo.New(cpus, topo.CPUs(0, 1))
}

func member(uid string, class protocol.QoS, kube protocol.KubeQoS) engine.Member {
	return engine.Member{Pod: &workload.Pod{
		ID: "sandbox-" + uid, UID: uid, Namespace: "default", Name: uid, KubeQoS: kube, Ask: protocol.Ask{QoS: class},
		Cgroup: "/kubepods/besteffort/pod" + uid, QoSCgroup: "/kubepods/besteffort",
	}}
}

// facts is the reference's worked example (koordinator-node.md §12.8): 32 CPUs, 65 %, LS pods 8, system 2 of which 1 is reserved, and
// a host application of 1 that is not told here and so counts as system.
func facts(policy string) (*decide.Facts, *window.Memory) {
	spec := strategy.Effective(strategy.Spec{ResourceUsedThresholdWithBE: &strategy.ResourceThresholdStrategy{
		Enable: new(true), CPUSuppressThresholdPercent: new(int64(65)), CPUSuppressPolicy: &policy,
	}})
	w := window.New(window.Options{})
	f := &decide.Facts{
		Now: now, Interval: unit.Second, Window: w,
		View: &node.View{Strategy: &spec, Topology: machine(), MemCapacity: 100 << 30},
		Members: []engine.Member{
			member("be", protocol.QoSBE, protocol.KubeBestEffort),
			{Pod: &workload.Pod{ID: "s", UID: "ls", KubeQoS: protocol.KubeBurstable, Ask: protocol.Ask{QoS: protocol.QoSLS}, QoSCgroup: "/kubepods/burstable"}},
		},
		Node: &kube.Node{Capacity: amount.Amounts{CPU: 32000}, Allocatable: amount.Amounts{CPU: 31000}},
	}
	return f, w
}

func measure(w *window.Memory, at unit.Micros, total, ls, be float64) {
	w.Append([]sample.Sample{
		{Subject: sample.OfNode(), Metric: sample.CPUUsage, Value: total, At: at},
		{Subject: sample.OfPod("ls"), Metric: sample.CPUUsage, Value: ls, At: at},
		{Subject: sample.OfPod("be"), Metric: sample.CPUUsage, Value: be, At: at},
	})
}

func TestSuppressByQuota(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCFSQuota)
	measure(w, now-unit.Second/2, 14, 8, 3) // 3 of the system
	s, out := decide.Step(decide.State{}, f)
	// 20.8 − 8 − 3 = 9.8
	want := plan.Setting{
		Target: plan.Target{Level: plan.LevelQoS, Cgroup: "/kubepods/besteffort"}, Knob: plan.CPUQuota, Value: plan.Int(980000),
		Owner: protocol.FeatureBatch, Reason: out.Suppress.Reason,
	}
	if len(out.Tier) != 1 || out.Tier[0] != want {
		t.Errorf("tier: %v\nwant: %v", out.Tier, &want)
	}
	if !out.Dynamic.BECPUs.Empty() {
		t.Errorf("a set beside the quota: %s", out.Dynamic.BECPUs)
	}
	// Suppression ends: the quota is taken back once, and left alone then.
	f.View.Strategy.ResourceUsedThresholdWithBE.Enable = new(false)
	s, out = decide.Step(s, f)
	if len(out.Tier) != 1 || out.Tier[0].Value != plan.Int(int64(unit.Unlimited)) {
		t.Errorf("tier after the end: %v", out.Tier)
	}
	if _, out = decide.Step(s, f); len(out.Tier) != 0 {
		t.Errorf("tier of nobody's business: %v", out.Tier)
	}
}

func TestSuppressByCPUSet(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCPUSet)
	f.View.Claims = node.Claims{LSE: topo.Range(0, 1), LSR: topo.Range(2, 3), Reserved: topo.CPUs(31)}
	f.Node.Annotations = map[string]string{
		protocol.AnnotationSystemQoSResource: `{"cpuset":"30"}`, protocol.AnnotationNormalizationRatio: "1.20",
	}
	measure(w, now-unit.Second/2, 14, 8, 3)
	_, out := decide.Step(decide.State{}, f)
	d := &out.Dynamic
	if n := d.BECPUs.Len(); n != 10 {
		t.Errorf("%d CPUs, want 10: %s", n, d.BECPUs)
	}
	if apart := topo.Range(0, 3).Union(topo.Range(30, 31)); d.BECPUs.Overlaps(apart) || d.BESharesLSR {
		t.Errorf("CPUs of others: %s", d.BECPUs)
	}
	if got := d.SharePools; len(got) != 2 || got[0].CPUs.String() != "4-15" || got[1].CPUs.String() != "16-29" || got[1].Socket != 1 || got[1].Node != 1 {
		t.Errorf("share pools: %+v", got)
	}
	if got := d.BESharePools; len(got) != 2 || got[0].CPUs.String() != "2-15" {
		t.Errorf("best-effort share pools: %+v", got)
	}
	if d.SystemQoS.String() != "30" || !d.SystemQoSExclusive || d.Normalization != 120 {
		t.Errorf("system %s exclusive %v, normalization %d", d.SystemQoS, d.SystemQoSExclusive, d.Normalization)
	}
	if len(out.Tier) != 0 {
		t.Errorf("tier: %v", out.Tier)
	}
}

// A sample older than two ticks is none, and what was not measured changes nothing.
func TestOldSamples(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCFSQuota)
	measure(w, now-5*unit.Second, 14, 8, 3)
	_, out := decide.Step(decide.State{}, f)
	if out.Suppress.Mode != suppress.Unknown || len(out.Tier) != 0 || !strings.Contains(out.Suppress.Reason, "no change") {
		t.Errorf("decided on old samples: %+v", out.Suppress)
	}
}

// Pressure cuts what the best-effort pods use, unless the pod that waits does so by a limit of its own or of its containers.
func TestPressure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		throttled sample.Subject
		want      bool
	}{
		"nobody is throttled": {sample.OfPod("other"), true},
		"the pod is":          {sample.OfPod("ls"), false},
		"its container is":    {sample.OfContainer("c1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, w := facts(strategy.SuppressCFSQuota)
			f.Members[1].Containers = []*workload.Container{{ID: "c1"}}
			measure(w, now-unit.Second/2, 14, 8, 3)
			w.Append([]sample.Sample{
				{Subject: sample.OfPod("ls"), Metric: sample.StallCPUSome, Value: 5e5, At: now - unit.Second/2},
				{Subject: c.throttled, Metric: sample.CPUThrottled, Value: 0.3, At: now - unit.Second/2},
			})
			if _, out := decide.Step(decide.State{}, f); out.Suppress.Cut != c.want {
				t.Errorf("cut %v, want %v: %s", out.Suppress.Cut, c.want, out.Suppress.Reason)
			}
		})
	}
}

// Without figures, as right after a start, what is in force stays: the set that was handed on last, and the quota in the
// kernel, which may be younger than the state.
func TestWithoutFiguresWhatIsInForceStays(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCPUSet)
	f.View.Dynamic = node.Dynamic{Known: true, BECPUs: topo.Range(4, 9), BESharesLSR: true}
	_, out := decide.Step(decide.State{}, f)
	if d := &out.Dynamic; d.BECPUs.String() != "4-9" || !d.BESharesLSR {
		t.Errorf("published: %s, shares %v", d.BECPUs, d.BESharesLSR)
	}
	f, _ = facts(strategy.SuppressCFSQuota)
	kept := decide.State{TierHeld: true, Suppress: suppress.State{Mode: suppress.Quota, Quota: 500000}}
	s, out := decide.Step(kept, f)
	if len(out.Tier) != 0 || !s.TierHeld {
		t.Errorf("tier: %v, held %v", out.Tier, s.TierHeld)
	}
	measure(w, now-unit.Second/2, 14, 8, 3)
	f.Window = w
	if _, out = decide.Step(s, f); len(out.Tier) != 1 {
		t.Errorf("tier with figures: %v", out.Tier)
	}
}
