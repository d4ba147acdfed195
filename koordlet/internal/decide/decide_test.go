// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"encoding/json"
	"slices"
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

// The class's directory outlives its pods, and so does the quota in it: it is kept while there is none, taken back when suppression
// ends, and known over a restart. Pods of other classes tell where the directory is.
func TestTheQuotaOutlivesItsPods(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCFSQuota)
	ls := f.Members[1]
	tick := func(members ...engine.Member) {
		f.Now, f.Members = f.Now+unit.Second, members
		measure(w, f.Now-unit.Second/2, 14, 8, 3)
	}
	tick(f.Members...)
	s, out := decide.Step(decide.State{}, f)
	if !out.Dynamic.BEQuota || len(out.Tier) != 1 {
		t.Fatalf("not held: %v", out.Tier)
	}
	tick(ls) // the last best-effort pod has ended
	if s, out = decide.Step(s, f); len(out.Tier) != 1 || out.Tier[0].Target.Cgroup != "/kubepods/besteffort" || !out.Dynamic.BEQuota {
		t.Errorf("without a pod: %v, held %v", out.Tier, out.Dynamic.BEQuota)
	}
	kept, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var again decide.State
	if err := json.Unmarshal(kept, &again); err != nil {
		t.Fatal(err)
	}
	f.View.Strategy.ResourceUsedThresholdWithBE.Enable = new(false)
	tick(ls)
	for name, from := range map[string]decide.State{"the same life": s, "the next life": again} {
		next, out := decide.Step(from, f)
		if len(out.Tier) != 1 || out.Tier[0].Value != plan.Int(int64(unit.Unlimited)) || out.Tier[0].Target.Cgroup != "/kubepods/besteffort" {
			t.Errorf("%s: %v", name, out.Tier)
		}
		if out.Dynamic.BEQuota || !out.Owns {
			t.Errorf("%s: held %v, owns %v", name, out.Dynamic.BEQuota, out.Owns)
		}
		if _, out = decide.Step(next, f); len(out.Tier) != 0 {
			t.Errorf("%s, later: %v", name, out.Tier)
		}
	}
	// A node that has had pods of other classes only.
	f, w = facts(strategy.SuppressCFSQuota)
	ls.Pod.Cgroup = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podls.slice"
	tick(ls)
	if _, out = decide.Step(decide.State{}, f); len(out.Tier) != 1 || out.Tier[0].Target.Cgroup != "/kubepods.slice/kubepods-besteffort.slice" {
		t.Errorf("beside other pods: %v", out.Tier)
	}
	// Without any, nobody knows where it is, and no pod is to count on it.
	tick()
	if _, out = decide.Step(decide.State{}, f); len(out.Tier) != 0 || out.Dynamic.BEQuota {
		t.Errorf("on an empty node: %v, held %v", out.Tier, out.Dynamic.BEQuota)
	}
}

// The class's quota is a knob of the feature batch: observed it is recorded only, and what was ours goes back when it is switched off or
// ceded. No pod counts on it then.
func TestTheQuotaObeysItsFeature(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change      func(*node.View)
		first, then string
	}{
		"active":   {func(*node.View) {}, "980000", "980000"},
		"observed": {func(v *node.View) { v.Modes[protocol.FeatureBatch] = node.Observe }, "980000 observed", "-1"},
		"off":      {func(v *node.View) { v.Modes[protocol.FeatureBatch] = node.Off }, "", "-1"},
		"ceded":    {func(v *node.View) { v.Ceded = plan.KnobSet(plan.CPUQuota) }, "", "-1"},
	} {
		for _, was := range []bool{false, true} {
			f, w := facts(strategy.SuppressCFSQuota)
			measure(w, now-unit.Second/2, 14, 8, 3)
			var s decide.State
			want := tc.first
			if was {
				s, _ = decide.Step(s, f)
				want = tc.then
			}
			tc.change(f.View)
			_, out := decide.Step(s, f)
			got := ""
			for i := range out.Tier {
				if got = out.Tier[i].Value.String(); out.Tier[i].Observe {
					got += " observed"
				}
			}
			if got != want || out.Dynamic.BEQuota != (name == "active") {
				t.Errorf("%s, held before %v: %q, held %v; want %q", name, was, got, out.Dynamic.BEQuota, want)
			}
		}
	}
}

// A best-effort pod with requests stands in another directory: the quota cannot hold it, so it gets the less. A set holds both.
func TestPodsBeyondTheQuota(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]unit.MilliCPU{strategy.SuppressCFSQuota: 6800, strategy.SuppressCPUSet: 9800} {
		f, w := facts(policy)
		f.Members[0].Pod.KubeQoS = protocol.KubeBurstable
		measure(w, now-unit.Second/2, 14, 8, 3)
		if _, out := decide.Step(decide.State{}, f); out.Suppress.Allowance.V != want || out.Suppress.System != 3000 {
			t.Errorf("%s: %d, want %d: %s", policy, out.Suppress.Allowance.V, want, out.Suppress.Reason)
		}
	}
}

// What the node keeps is the largest of what the kubelet, the configuration and the annotation say; CPUs that are named are nobody's.
func TestReserved(t *testing.T) {
	t.Parallel()
	const raw, reservation = protocol.AnnotationRawAllocatable, protocol.AnnotationNodeReservation
	for name, tc := range map[string]struct {
		allocatable unit.MilliCPU
		annotations map[string]string
		own         topo.CPUSet
		want        unit.MilliCPU
		apart       topo.CPUSet
	}{
		"the kubelet's":                 {allocatable: 28000, want: 4000},
		"amplified":                     {allocatable: 48000, annotations: map[string]string{raw: `{"cpu":"28"}`}, want: 4000},
		"amplified by nobody knows how": {allocatable: 20000, annotations: map[string]string{raw: `{`}, want: 3000}, // what the system uses
		"an amount":                     {allocatable: 31000, annotations: map[string]string{reservation: `{"resources":{"cpu":"5500m"}}`}, want: 5500},
		"an amount below the kubelet's": {allocatable: 28000, annotations: map[string]string{reservation: `{"resources":{"cpu":"3"}}`}, want: 4000},
		"CPUs":                          {allocatable: 31000, annotations: map[string]string{reservation: `{"reservedCPUs":"16-20,99"}`}, want: 5000, apart: topo.Range(16, 20)},
		"CPUs before an amount":         {allocatable: 31000, annotations: map[string]string{reservation: `{"resources":{"cpu":"9"},"reservedCPUs":"16-20"}`}, want: 5000, apart: topo.Range(16, 20)},
		"the configuration's too":       {allocatable: 31000, annotations: map[string]string{reservation: `{"reservedCPUs":"31"}`}, own: topo.Range(24, 28), want: 6000, apart: topo.Range(24, 28).Union(topo.CPUs(31))},
		"no annotation at all":          {allocatable: 31000, annotations: map[string]string{reservation: `nonsense`}, want: 3000},
	} {
		f, w := facts(strategy.SuppressCPUSet)
		f.Node.Allocatable.CPU, f.Node.Annotations, f.View.Claims.Reserved = tc.allocatable, tc.annotations, tc.own
		measure(w, now-unit.Second/2, 14, 8, 3)
		_, out := decide.Step(decide.State{}, f)
		if out.Suppress.System != tc.want {
			t.Errorf("%s: %d kept, want %d: %s", name, out.Suppress.System, tc.want, out.Suppress.Reason)
		}
		sets := []topo.CPUSet{out.Dynamic.BECPUs}
		for _, p := range slices.Concat(out.Dynamic.SharePools, out.Dynamic.BESharePools) {
			sets = append(sets, p.CPUs)
		}
		for _, set := range sets {
			if set.Empty() || set.Overlaps(tc.apart) {
				t.Errorf("%s: %s has some of %s", name, set, tc.apart)
			}
		}
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

// Pressure cuts what the best-effort pods use, unless limits of the pod that waits, or of its containers, are what it waits for: what
// they explain is taken off.
func TestPressure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		throttled string
		micros    float64
		before    unit.Micros // how long before the pressure it is told of
		want      bool
		limits    bool // its container has one
		rated     bool // and a figure
	}{
		"it has a limit, and no figure yet":          {throttled: "other", micros: 5e5, limits: true},
		"it has a limit that stops nobody":           {throttled: "other", micros: 5e5, limits: true, rated: true, want: true},
		"nobody is throttled":                        {throttled: "other", micros: 5e5, want: true},
		"it is, for all of it":                       {throttled: "ls", micros: 5e5, want: false},
		"it is, for nearly all":                      {throttled: "ls", micros: 4.5e5, want: false},
		"it is, for one period's rest":               {throttled: "ls", micros: 2e4, want: true},
		"it is, on many CPUs":                        {throttled: "ls", micros: 4e6, want: false},
		"it was, before the interval of the reading": {throttled: "ls", micros: 5e5, before: unit.Second, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, w := facts(strategy.SuppressCFSQuota)
			f.Members[1].Containers = []*workload.Container{{ID: "c1"}}
			if c.limits {
				f.Members[1].Containers[0].Base.Quota = unit.Some(100000)
			}
			if c.rated {
				w.Append([]sample.Sample{{Subject: sample.OfContainer("c1"), Metric: sample.CPUUsage, Value: 0.5, At: now - unit.Second/2}})
			}
			measure(w, now-unit.Second/2, 14, 8, 3)
			w.Append([]sample.Sample{
				{Subject: sample.OfPod(c.throttled), Metric: sample.StallCPUOwn, Value: c.micros, At: now - unit.Second/2 - c.before},
				{Subject: sample.OfPod("ls"), Metric: sample.StallCPUSome, Value: 5e5, At: now - unit.Second/2},
				// What it was throttled for in the last second is no part of that interval, however long.
				{Subject: sample.OfContainer("c1"), Metric: sample.CPUThrottledTime, Value: 9e6, At: now - unit.Second/2},
			})
			if _, out := decide.Step(decide.State{}, f); out.Suppress.Cut != c.want {
				t.Errorf("cut %v, want %v: %s", out.Suppress.Cut, c.want, out.Suppress.Reason)
			}
		})
	}
}

// A cap that pressure has set is lifted some ten seconds after the pressure has gone, because its pods are looked at in each tick
// until then: read slowly, the last reading would still be of a time of pressure, and twice as old.
func TestPressureCapIsLifted(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCFSQuota)
	var s decide.State
	stalled := 0.0 // µs of LS since the beginning
	read, readAt := 0.0, f.Now
	lifted := -1
	for tick := range 60 {
		f.Now += unit.Second
		f.Urgent = false
		at := f.Now - unit.Second/10
		if tick < 5 {
			stalled += 3e5
		}
		// What the scanner does: slowly, or in each tick while it is told to.
		if tick%10 == 9 || decide.Watch(&s) {
			over := float64(at-readAt) / float64(unit.Second)
			w.Append([]sample.Sample{{Subject: sample.OfPod("ls"), Metric: sample.StallCPUSome, Value: (stalled - read) / over, At: at}})
			read, readAt = stalled, at
		}
		measure(w, at, 14, 8, 3)
		s, _ = decide.Step(s, f)
		if tick == 2 { // the kernel's trigger
			f.Urgent = true
			s, _ = decide.Step(s, f)
			if !decide.Watch(&s) {
				t.Fatal("a cap that nobody watches")
			}
		}
		if tick > 5 && lifted < 0 && !s.Suppress.Press.Capped {
			lifted = tick
		}
	}
	if lifted < 14 || lifted > 17 {
		t.Errorf("lifted %d s after the pressure had gone, want about ten", lifted-5)
	}
	if decide.Watch(&s) {
		t.Error("watched although nothing is capped")
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
