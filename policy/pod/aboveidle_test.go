// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/pod"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// A pod without a CPU request weighs less than an idle one on cgroup v1 and than four on v2, so those of other classes than BE are
// lifted above all of them.
func TestAboveIdle(t *testing.T) {
	t.Parallel()
	be := func(v *node.View) *strategy.CPUQOS { return v.Strategy.ResourceQOSStrategy.BEClass.CPUQOS }
	for name, tc := range map[string]struct {
		class  protocol.QoS
		kube   protocol.KubeQoS
		shares int64 // the kubelet's, 0 where nothing tells
		change func(*node.View)
		spec   spec
		want   string
	}{
		"LS":                         {class: protocol.QoSLS, shares: 2, want: "1024"},
		"LS, shares not known":       {class: protocol.QoSLS, want: "1024"},
		"LSR":                        {class: protocol.QoSLSR, shares: 2, want: "1024"},
		"SYSTEM":                     {class: protocol.QoSSystem, shares: 2, want: "1024"},
		"LS, on v2":                  {class: protocol.QoSLS, shares: 2, change: func(v *node.View) { v.Kernel.Cgroup = node.CgroupV2 }, want: "1024"},
		"LS with a request":          {class: protocol.QoSLS, kube: protocol.KubeBurstable, shares: 102, want: "-"},
		"LS with a request for RAM":  {class: protocol.QoSLS, kube: protocol.KubeBurstable, shares: 2, want: "-"},
		"LS that has some":           {class: protocol.QoSLS, shares: 1023, want: "1024"},
		"LS that has as much":        {class: protocol.QoSLS, shares: 1024, want: "-"},
		"BE":                         {class: protocol.QoSBE, shares: 2, want: "-"},
		"no label":                   {class: protocol.QoSNone, shares: 2, want: "-"},
		"BE on batch-cpu":            {class: protocol.QoSBE, shares: 2, spec: spec{"app": pt.Batch(500, 0)}, want: "512"},
		"LS, its class off":          {class: protocol.QoSLS, shares: 2, change: func(v *node.View) { *v.Strategy.ResourceQOSStrategy.LSClass.CPUQOS.Enable = false }, want: "1024"},
		"LS, BE off":                 {class: protocol.QoSLS, shares: 2, change: func(v *node.View) { *be(v).Enable = false }, want: "-"},
		"LS, BE not idle":            {class: protocol.QoSLS, shares: 2, change: func(v *node.View) { *be(v).GroupIdentity = 0 }, want: "-"},
		"LS, BE by schedIdle":        {class: protocol.QoSLS, shares: 2, change: func(v *node.View) { *be(v).GroupIdentity, *be(v).SchedIdle = 0, 1 }, want: "1024"},
		"LS, no cpu.idle":            {class: protocol.QoSLS, shares: 2, change: func(v *node.View) { v.Kernel.Knobs[plan.CPUIdle].OK = false }, want: "-"},
		"LS, cpu.idle ceded":         {class: protocol.QoSLS, shares: 2, change: func(v *node.View) { v.Ceded = plan.KnobSet(plan.CPUIdle) }, want: "-"},
		"LS, cpu.shares ceded":       {class: protocol.QoSLS, shares: 2, change: func(v *node.View) { v.Ceded = plan.KnobSet(plan.CPUShares) }, want: "-"},
		"LS, identity off":           {class: protocol.QoSLS, shares: 2, change: func(v *node.View) { v.Modes[protocol.FeatureIdentity] = node.Off }, want: "-"},
		"LS, a kernel with identity": {class: protocol.QoSLS, shares: 2, change: func(v *node.View) { pt.Vendor(v).Kernel.Cgroup = node.CgroupV1 }, want: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := file(t, pt.View(), m5), pt.Pod(tc.class)
			v.Kernel.Cgroup = node.CgroupV1
			if tc.change != nil {
				tc.change(v)
			}
			p.KubeQoS, p.Base, p.Ask.Extended = protocol.KubeBestEffort, workload.Resources{}, tc.spec
			if tc.kube != protocol.KubeUnknown {
				p.KubeQoS = tc.kube
			}
			if tc.shares > 0 {
				p.Base.Shares = unit.Some(tc.shares)
			}
			pl, _ := pod.Decide(v, p, pod.Sums{})
			pt.Want(t, pl, want{"cpu.shares": tc.want}, false)
			owner := protocol.FeatureIdentity
			if tc.spec != nil {
				owner = protocol.FeatureBatch
			}
			if s := pl.Get(plan.CPUShares); s != nil && s.Owner != owner {
				t.Errorf("owner %s of %s, want %s", s.Owner, s, owner)
			}
		})
	}
}

// However many idle pods a node can have (the kubelet's default is 110), the one beside them keeps the larger part.
func TestAboveManyIdle(t *testing.T) {
	t.Parallel()
	const idle, most, v2PerWeight = 3.0, 110, 1024.0 / 100 // kernel/sched/sched.h: WEIGHT_IDLEPRIO, sched_weight_from_cgroup
	for name, tc := range map[string]struct {
		cgroup node.CgroupVersion
		load   func(unit.Shares) float64
	}{
		"v1":            {node.CgroupV1, func(s unit.Shares) float64 { return float64(s) }},
		"v2, linear":    {node.CgroupV2, func(s unit.Shares) float64 { return float64(unit.Linear.Weight(s)) * v2PerWeight }},
		"v2, quadratic": {node.CgroupV2, func(s unit.Shares) float64 { return float64(unit.Quadratic.Weight(s)) * v2PerWeight }},
	} {
		v, p := file(t, pt.View(), m5), pt.Pod(protocol.QoSLS)
		v.Kernel.Cgroup, p.KubeQoS, p.Base = tc.cgroup, protocol.KubeBestEffort, workload.Resources{Shares: unit.Some(int64(2))}
		pl, _ := pod.Decide(v, p, pod.Sums{})
		s := pl.Get(plan.CPUShares)
		if s == nil {
			t.Fatalf("%s: no cpu.shares in %s", name, pl)
		}
		load := tc.load(unit.Shares(s.Value.Int()))
		for n, want := range map[int]float64{1: 0.99, 8: 0.94, most: 0.54} {
			if got := load / (load + idle*float64(n)); got < want {
				t.Errorf("%s: LS has %.3f beside %d idle pods, want %.2f at least", name, got, n, want)
			}
		}
	}
}
