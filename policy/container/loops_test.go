// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/pod"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// TestLoopsInTheQuotaChain: what the burst and interference loops decide is one more step of the one composition.
func TestLoopsInTheQuotaChain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]quotaCase{
		"burst":                   {class: protocol.QoSLS, base: 200000, loop: raise(1.2, 40000), quota: "240000", pod: "240000", owner: protocol.FeatureBurst, reason: "kubelet 200000, raised by burst"},
		"burst of a normalised":   {class: protocol.QoSLS, base: 400000, ratio: 120, loop: raise(1.2, 66667), quota: "400001", pod: "400001", owner: protocol.FeatureBurst, reason: "kubelet 400000, divided by ratio 1.20, raised by burst"},
		"burst off":               {class: protocol.QoSLS, base: 200000, loop: raise(1.2, 40000), modes: map[protocol.Feature]node.Mode{protocol.FeatureBurst: node.Off}, quota: "-", pod: "-"},
		"burst without a quota":   {class: protocol.QoSLS, base: -1, loop: raise(1.2, 40000), quota: "-", pod: "-"},
		"burst with its own CPUs": {class: protocol.QoSNone, base: 200000, cpus: "0-1", loop: raise(1.2, 40000), quota: "-1", pod: "-1", owner: protocol.FeatureCPUSet},
		"no burst":                {class: protocol.QoSLS, base: 200000, loop: raise(1, 0), quota: "-", pod: "-"},
		"cap without a quota":     {class: protocol.QoSBE, base: -1, loop: node.QuotaLoop{Cap: 500}, quota: "50000", pod: "50000", owner: protocol.FeatureBatch, reason: "kubelet unlimited, held down because it disturbs others"},
		"cap below batch":         {class: protocol.QoSBE, base: -1, batch: 2000, loop: node.QuotaLoop{Cap: 500}, quota: "50000", pod: "50000", owner: protocol.FeatureBatch},
		"cap above batch":         {class: protocol.QoSBE, base: -1, batch: 2000, loop: node.QuotaLoop{Cap: 5000}, quota: "200000", pod: "200000", owner: protocol.FeatureBatch},
		"cap at the minimum":      {class: protocol.QoSBE, base: -1, loop: node.QuotaLoop{Cap: 1}, quota: "1000", pod: "1000", owner: protocol.FeatureBatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p, c := tc.build()
			p.Base.Quota = c.Base.Quota
			without, _ := container.Decide(v, p, c)
			standing := unit.Micros(tc.base)
			if s := without.Get(plan.CPUQuota); s != nil {
				standing = unit.Micros(s.Value.Int())
			}
			v.Dynamic.Quotas = map[string]node.QuotaLoop{p.UID: tc.loop, "another": {Cap: 100}}
			if got := container.BaseQuota(v, p, c); got != standing {
				t.Errorf("base quota %d, want %d", got, standing)
			}
			pl, _ := container.Decide(v, p, c)
			tc.check(t, pl)
			pods, _ := pod.Decide(v, p, pod.Sums{})
			pt.Want(t, pods, want{"cpu.quota": tc.pod}, false)
			if got := pod.BaseQuota(v, p); got != standing {
				t.Errorf("base quota of the pod %d, want %d", got, standing)
			}
		})
	}
}

// raise is the loop's wish for the container "c1".
func raise(factor unit.Fraction, plus unit.Micros) node.QuotaLoop {
	return node.QuotaLoop{Factors: map[string]unit.Fraction{"c1": factor, "c2": 9}, Plus: plus}
}

func TestMemoryHighOfTheLoop(t *testing.T) {
	t.Parallel()
	const strategyText = "resourceQOSStrategy: {beClass: {memoryQOS: {enable: true, throttlingPercent: 80}}}"
	for name, tc := range map[string]struct {
		text   string
		loop   map[string]node.MemoryHigh
		change func(*node.View)
		want   string
		reason string
	}{
		"its own":            {text: strategyText, want: "1717985280"},
		"the loop's":         {text: strategyText, loop: map[string]node.MemoryHigh{"c1": {Bytes: 1 << 30, Reason: "tight"}}, want: "1073741824", reason: "tight"},
		"another's":          {text: strategyText, loop: map[string]node.MemoryHigh{"c2": {Bytes: 1 << 30}}, want: "1717985280"},
		"without memory QoS": {loop: map[string]node.MemoryHigh{"c1": {Bytes: 1 << 30, Reason: "tight"}}, want: "1073741824", reason: "tight"},
		"neither":            {want: "-"},
		"feature off": {
			loop: map[string]node.MemoryHigh{"c1": {Bytes: 1 << 30}}, want: "-",
			change: func(v *node.View) { v.Modes[protocol.FeatureMemory] = node.Off },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.YAML(t, pt.View(), tc.text), pt.Pod(protocol.QoSBE)
			p.Ask.Extended = map[string]protocol.ExtendedContainer{"app": pt.Batch(0, 2<<30)}
			c := pt.Container(p)
			v.Dynamic.MemoryHigh = tc.loop
			if tc.change != nil {
				tc.change(v)
			}
			pl, _ := container.Decide(v, p, c)
			pt.Want(t, pl, want{"memory.high": tc.want}, false)
			if s := pl.Get(plan.MemoryHigh); s != nil && !strings.Contains(s.Reason, tc.reason) {
				t.Errorf("reason %q", s.Reason)
			}
		})
	}
}
