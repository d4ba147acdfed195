// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/container"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

func parse(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }

var classes = []protocol.QoS{protocol.QoSNone, protocol.QoSLSE, protocol.QoSLSR, protocol.QoSLS, protocol.QoSBE, protocol.QoSSystem}

// loaded is a pod that uses every feature.
func loaded(class protocol.QoS) *workload.Pod {
	p := pt.Pod(class)
	adj, pct, read := 100, int64(50), int64(1048576)
	p.Ask.OOMScoreAdj = &adj
	p.Ask.MemoryQOS = &protocol.MemoryQOS{MemoryQOS: strategy.MemoryQOS{LowLimitPercent: &pct}}
	p.Ask.CPUBurst = &protocol.CPUBurst{CPUBurstPercent: &pct}
	p.Ask.CoreSchedGroup = "tenant-a"
	p.Ask.BlkIO = []strategy.Block{{Name: "sda", Type: strategy.BlockDevice, IOCfg: strategy.IOCfg{ReadBPS: &read}}}
	p.Ask.Resctrl = &protocol.Resctrl{LLC: &protocol.Range{Start: 0, End: 50}}
	p.Ask.Extended = map[string]protocol.ExtendedContainer{"app": pt.Batch(500, pt.GiB)}
	p.Ask.ResourceStatus = &protocol.ResourceStatus{CPUSet: "2-3", NUMANodes: []int{0}}
	p.Ask.Devices = map[string][]protocol.DeviceAllocation{"gpu": {whole(1, "GPU-b")}}
	return p
}

func loadedView(tb testing.TB) *node.View {
	v := pt.Vendor(pt.YAML(tb, gpuView(), pt.Everything))
	v.Claims.LSE, v.Claims.LSR, v.Claims.Reserved = topo.CPUs(4), topo.CPUs(5), topo.CPUs(7)
	v.Dynamic = node.Dynamic{Known: true, BECPUs: topo.Range(0, 6), Normalization: 120}
	return v
}

func TestEveryFeatureOff(t *testing.T) {
	t.Parallel()
	v := loadedView(t)
	for f := range v.Modes {
		v.Modes[f] = node.Off
	}
	for _, class := range classes {
		p := loaded(class)
		if pl, problems := container.Decide(v, p, pt.Container(p)); pl != nil || problems != nil {
			t.Errorf("%s: plan %v problems %v, want nothing", class, pl, problems)
		}
	}
}

func TestPodWithoutLabelUnderDisabledStrategy(t *testing.T) {
	t.Parallel()
	for _, kube := range []protocol.KubeQoS{protocol.KubeUnknown, protocol.KubeGuaranteed, protocol.KubeBurstable, protocol.KubeBestEffort} {
		v, p := pt.Vendor(pt.View()), pt.Pod(protocol.QoSNone)
		p.KubeQoS = kube
		if pl, problems := container.Decide(v, p, pt.Container(p)); pl != nil || problems != nil {
			t.Errorf("%s: plan %v problems %v, want nothing", kube, pl, problems)
		}
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		view func(*node.View)
		pod  func(*workload.Pod)
		keep func(*plan.Setting) bool
	}{
		"opt-out of all":          {pod: func(p *workload.Pod) { p.Ask.OptOut = protocol.AllFeatures }, keep: func(*plan.Setting) bool { return false }},
		"opt-out of one":          {pod: func(p *workload.Pod) { p.Ask.OptOut = protocol.FeatureSet(0).With(protocol.FeatureMemory) }, keep: func(s *plan.Setting) bool { return s.Owner != protocol.FeatureMemory }},
		"namespace":               {view: func(v *node.View) { v.OptOutNamespaces = []string{"kube-system", "default"} }, keep: func(*plan.Setting) bool { return false }},
		"namespace pattern":       {view: func(v *node.View) { v.OptOutNamespaces = []string{"[bad", "def*"} }, keep: func(*plan.Setting) bool { return false }},
		"one letter":              {view: func(v *node.View) { v.OptOutNamespaces = []string{"?efault"} }, keep: func(*plan.Setting) bool { return false }},
		"letters":                 {view: func(v *node.View) { v.OptOutNamespaces = []string{"[c-e]efault"} }, keep: func(*plan.Setting) bool { return false }},
		"escaped":                 {view: func(v *node.View) { v.OptOutNamespaces = []string{`\default`} }, keep: func(*plan.Setting) bool { return false }},
		"any handler":             {view: func(v *node.View) { v.ForeignHandlers = []string{"*"} }, keep: func(*plan.Setting) bool { return false }},
		"no handler":              {view: func(v *node.View) { v.ForeignHandlers = []string{""} }, keep: func(*plan.Setting) bool { return false }},
		"other namespace":         {view: func(v *node.View) { v.OptOutNamespaces = []string{"kube-*"} }, keep: func(*plan.Setting) bool { return true }},
		"foreign handler":         {view: func(v *node.View) { v.ForeignHandlers = []string{"kata*"} }, pod: func(p *workload.Pod) { p.RuntimeHandler = "kata-qemu" }, keep: func(*plan.Setting) bool { return false }},
		"other handler":           {view: func(v *node.View) { v.ForeignHandlers = []string{"kata*", "[bad"} }, pod: func(p *workload.Pod) { p.RuntimeHandler = "runc" }, keep: func(*plan.Setting) bool { return true }},
		"ceded knob":              {view: func(v *node.View) { v.Ceded = plan.KnobSet(plan.OOMScoreAdj, plan.Env) }, keep: func(s *plan.Setting) bool { return s.Knob != plan.OOMScoreAdj && s.Knob != plan.Env }},
		"knob the kernel has not": {view: func(v *node.View) { v.Kernel.Knobs[plan.MemoryLow].OK = false }, keep: func(s *plan.Setting) bool { return s.Knob != plan.MemoryLow }},
		"one feature off":         {view: func(v *node.View) { v.Modes[protocol.FeatureLLC] = node.Off }, keep: func(s *plan.Setting) bool { return s.Owner != protocol.FeatureLLC }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, class := range classes {
				v, p := loadedView(t), loaded(class)
				all, _ := container.Decide(v, p, pt.Container(p))
				var expect plan.Plan
				for i := range all {
					if tc.keep(&all[i]) {
						expect = append(expect, all[i])
					}
				}
				if tc.view != nil {
					tc.view(v)
				}
				if tc.pod != nil {
					tc.pod(p)
				}
				got, _ := container.Decide(v, p, pt.Container(p))
				if got.String() != expect.String() {
					t.Errorf("%s: got\n%swant\n%s", class, got, expect)
				}
			}
		})
	}
}

func TestObserveMarksAndChangesNothingElse(t *testing.T) {
	t.Parallel()
	for _, class := range classes {
		p := loaded(class)
		v := loadedView(t)
		active, _ := container.Decide(v, p, pt.Container(p))
		for f := range v.Modes {
			v.Modes[f] = node.Observe
		}
		seen, _ := container.Decide(v, p, pt.Container(p))
		values := pt.Set(seen)
		for i := range seen {
			if !seen[i].Observe {
				t.Errorf("%s: %s is not marked", class, &seen[i])
			}
		}
		for i := range active {
			if active[i].Observe {
				t.Errorf("%s: %s is marked", class, &active[i])
			}
			// What rests on a value that would not be written (high on the batch limit, burst on the quota) may differ.
			if k := active[i].Knob; k != plan.MemoryHigh && k != plan.CPUBurst && values[k.String()] == "" && active[i].Key == "" {
				t.Errorf("%s: %s is not observed", class, &active[i])
			}
		}
	}
}

func TestOneOwnerPerKnob(t *testing.T) {
	t.Parallel()
	for _, class := range classes {
		p := loaded(class)
		pl, _ := container.Decide(loadedView(t), p, pt.Container(p))
		if len(pl) == 0 {
			t.Errorf("%s: nothing planned", class)
		}
		seen := map[plan.ID]bool{}
		for i := range pl {
			if seen[pl[i].ID()] {
				t.Errorf("%s: twice: %s", class, &pl[i])
			}
			seen[pl[i].ID()] = true
			if pl[i].Reason == "" || len(pl[i].Reason) > 200 {
				t.Errorf("%s: reason of %s", class, &pl[i])
			}
		}
	}
}

// TestProperties holds for random views, pods and containers: min <= low, low <= high (but for BE), burst <= quota, no
// empty cpuset, BE and LS never on LSE CPUs unless these are all, and the same input gives the same plan.
func TestProperties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		v, p, c := random(t, r)
		pl, _ := container.Decide(v, p, c)
		if again, _ := container.Decide(v, p, c); again.String() != pl.String() {
			t.Fatalf("not deterministic:\n%s\n%s", pl, again)
		}
		value := func(k plan.Knob) int64 {
			if s := pl.Get(k); s != nil {
				return s.Value.Int()
			}
			return -1
		}
		if s := pl.Get(plan.MemoryMin); s != nil && value(plan.MemoryLow) < s.Value.Int() {
			t.Fatalf("min above low:\n%s", pl)
		}
		if high := pl.Get(plan.MemoryHigh); high != nil && p.Class() != protocol.QoSBE && high.Value.Int() < value(plan.MemoryLow) {
			t.Fatalf("high below low:\n%s", pl)
		}
		if s := pl.Get(plan.CPUBurst); s != nil {
			quota := c.Base.Quota.V
			if q := pl.Get(plan.CPUQuota); q != nil {
				quota = q.Value.Int()
			}
			if quota <= 0 || s.Value.Int() > quota {
				t.Fatalf("burst above quota %d:\n%s", quota, pl)
			}
		}
		if s := pl.Get(plan.CPUSetCPUs); s != nil {
			set := cpus(t, s.Value.String())
			shared := p.Ask.QoS == protocol.QoSBE || p.Ask.QoS == protocol.QoSLS
			if set.Empty() || !set.SubsetOf(v.Topology.All()) || shared && set.Overlaps(v.Claims.LSE) && !v.Topology.All().SubsetOf(v.Claims.LSE) {
				t.Fatalf("cpuset %q with LSE %q:\n%s", set, v.Claims.LSE, pl)
			}
		}
	}
}

func random(t *testing.T, r *rand.Rand) (*node.View, *workload.Pod, *workload.Container) {
	t.Helper()
	v := pt.View()
	if r.IntN(2) == 0 {
		pt.YAML(t, v, pt.Everything)
	}
	set := func() topo.CPUSet {
		var s topo.CPUSet
		for i := range 8 {
			if r.IntN(3) == 0 {
				s = s.Union(topo.CPUs(i))
			}
		}
		return s
	}
	v.Claims = node.Claims{LSE: set(), LSR: set(), Reserved: set()}
	if r.IntN(20) == 0 {
		v.Claims.LSE = topo.Range(0, 7)
	}
	v.Dynamic = node.Dynamic{
		Known: r.IntN(2) == 0, BECPUs: set(), BESharesLSR: r.IntN(2) == 0, SystemQoS: set(), SystemQoSExclusive: r.IntN(2) == 0,
		SharePools: []node.Pool{{Node: 0, CPUs: set()}, {Node: 1, CPUs: set()}}, Normalization: unit.Ratio(r.IntN(300)),
	}
	p := pt.Pod(classes[r.IntN(len(classes))])
	p.KubeQoS = protocol.KubeQoS(r.IntN(4))
	p.Ask.ResourceStatus = &protocol.ResourceStatus{CPUSet: set().String(), NUMANodes: []int{r.IntN(3)}[:r.IntN(2)]}
	if r.IntN(2) == 0 {
		p.Ask.Extended = map[string]protocol.ExtendedContainer{"app": pt.Batch(r.Int64()>>r.IntN(63), r.Int64()>>r.IntN(63))}
	}
	pct := func() *int64 { n := r.Int64N(200); return &n }
	p.Ask.MemoryQOS = &protocol.MemoryQOS{MemoryQOS: strategy.MemoryQOS{MinLimitPercent: pct(), LowLimitPercent: pct(), ThrottlingPercent: pct()}}
	burst := r.Int64() >> r.IntN(63)
	p.Ask.CPUBurst = &protocol.CPUBurst{CPUBurstPercent: &burst}
	c := pt.Container(p)
	c.Base = pt.Limits(unit.MilliCPU(r.Int64()>>r.IntN(63)), unit.Bytes(r.Int64()>>r.IntN(63)))
	c.Base.OOMScoreAdj = unit.Some(int64(r.IntN(2001) - 1000))
	return v, p, c
}

func TestAllocations(t *testing.T) {
	v, p := loadedView(t), loadedLS()
	c := pt.Container(p)
	if n := testing.AllocsPerRun(200, func() { container.Decide(v, p, c) }); n > 15 {
		t.Errorf("a fully loaded LS container takes %v allocations, want at most 15", n)
	}
	idle := pt.Pod(protocol.QoSNone)
	ic := pt.Container(idle)
	v = pt.View()
	if n := testing.AllocsPerRun(200, func() { container.Decide(v, idle, ic) }); n > 2 {
		t.Errorf("a container without settings takes %v allocations, want at most 2", n)
	}
}

// loadedLS uses everything an LS pod without devices can.
func loadedLS() *workload.Pod {
	p := loaded(protocol.QoSLS)
	p.Ask.Devices, p.Ask.Extended = nil, nil
	return p
}

func BenchmarkDecide(b *testing.B) {
	v := loadedView(b)
	v.Pods = map[string]node.PodSpec{}
	for i := range 1000 {
		v.Pods["uid-"+strconv.Itoa(i)] = node.PodSpec{Containers: map[string]node.ContainerSpec{"app": {MemoryRequest: pt.GiB, MemoryLimit: 2 * pt.GiB}}}
	}
	for _, bc := range []struct {
		name string
		pod  *workload.Pod
	}{{"LS", loadedLS()}, {"LSR", loaded(protocol.QoSLSR)}, {"BE", loaded(protocol.QoSBE)}, {"none", pt.Pod(protocol.QoSNone)}} {
		b.Run(bc.name, func(b *testing.B) {
			c := pt.Container(bc.pod)
			b.ReportAllocs()
			for b.Loop() {
				container.Decide(v, bc.pod, c)
			}
		})
	}
}
