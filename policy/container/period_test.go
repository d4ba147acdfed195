// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/pod"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// TestQuotaOfAPeriod: a kubelet with another cpuCFSQuotaPeriod makes nobody's share of a CPU another one, at the container and at the pod.
func TestQuotaOfAPeriod(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		quotaCase
		ceded  plan.Knobs
		period int64
		// burst is the container's cpu.burst, period the planned one where another is than the kubelet's.
		burst, planned string
		standing       unit.Micros // what the loops reckon with
	}{
		"ratio":                       {quotaCase: quotaCase{class: protocol.QoSLS, ratio: 125, base: 40000, quota: "32000", pod: "32000"}, period: 10000, burst: "20000", standing: 320000},
		"ratio that does not go":      {quotaCase: quotaCase{class: protocol.QoSLS, ratio: 120, base: 40000, quota: "33333", pod: "33333"}, period: 10000, burst: "20000", standing: 333330},
		"longer":                      {quotaCase: quotaCase{class: protocol.QoSLS, ratio: 125, base: 2000000, quota: "1600000", pod: "1600000"}, period: 500000, burst: "1000000", standing: 320000},
		"batch":                       {quotaCase: quotaCase{class: protocol.QoSBE, batch: 1500, quota: "15000", pod: "15000"}, period: 10000, burst: "-", standing: 150000},
		"batch below 1 ms":            {quotaCase: quotaCase{class: protocol.QoSBE, batch: 50, quota: "1000", pod: "1000"}, period: 10000, burst: "-", standing: 10000},
		"raised":                      {quotaCase: quotaCase{class: protocol.QoSLS, base: 20000, loop: raise(1.2, 40000), quota: "24000", pod: "24000"}, period: 10000, burst: "10000", standing: 200000},
		"capped":                      {quotaCase: quotaCase{class: protocol.QoSBE, base: -1, loop: node.QuotaLoop{Cap: 500}, quota: "5000", pod: "5000"}, period: 10000, burst: "-", standing: -1},
		"the kubelet's own":           {quotaCase: quotaCase{class: protocol.QoSLS, base: 40000, quota: "-", pod: "-"}, period: 10000, burst: "20000", planned: "-", standing: 400000},
		"owns its CPUs":               {quotaCase: quotaCase{class: protocol.QoSNone, base: 40000, cpus: "0-1", quota: "-1", pod: "-1"}, period: 10000, burst: "-", planned: "-", standing: -1},
		"everybody's":                 {quotaCase: quotaCase{class: protocol.QoSBE, batch: 1500, quota: "150000", pod: "150000"}, period: 100000, burst: "-", planned: "-", standing: 150000},
		"shorter than a kernel takes": {quotaCase: quotaCase{class: protocol.QoSBE, batch: 1500, quota: "150000", pod: "150000"}, period: 999, burst: "-", planned: "-", standing: 150000},
		"smallest burst":              {quotaCase: quotaCase{class: protocol.QoSLS, base: 1000, quota: "-", pod: "-"}, period: 10000, burst: "500", planned: "-", standing: 10000},
		"not ours to write":           {quotaCase: quotaCase{class: protocol.QoSBE, batch: 1500, quota: "15000", pod: "150000"}, ceded: plan.KnobSet(plan.CPUPeriod), period: 10000, burst: "-", planned: "-", standing: 150000},
		"not ours, the kubelet's":     {quotaCase: quotaCase{class: protocol.QoSLS, ratio: 125, base: 40000, quota: "32000", pod: "32000"}, ceded: plan.KnobSet(plan.CPUPeriod), period: 10000, burst: "20000", planned: "-", standing: 320000},
		"quota ceded":                 {quotaCase: quotaCase{class: protocol.QoSBE, batch: 1500, quota: "-", pod: "-"}, ceded: plan.KnobSet(plan.CPUQuota), period: 10000, burst: "-", planned: "-", standing: -1},
		"longer than a kernel takes":  {quotaCase: quotaCase{class: protocol.QoSBE, batch: 1500, quota: "150000", pod: "150000"}, period: 1000001, burst: "-", planned: "-", standing: 150000},
		"observed": {
			quotaCase: quotaCase{class: protocol.QoSLS, ratio: 125, base: 40000, quota: "32000", pod: "32000", modes: map[protocol.Feature]node.Mode{protocol.FeatureNormalization: node.Observe}, watch: true},
			period:    10000, burst: "20000", standing: 400000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p, c := tc.build()
			v = pt.YAML(t, v, "cpuBurstStrategy: {policy: cpuBurstOnly, cpuBurstPercent: 50}")
			v.Dynamic.Normalization = tc.ratio
			for f, m := range tc.modes {
				v.Modes[f] = m
			}
			v.Ceded = tc.ceded
			c.Base.Period = unit.Some(tc.period)
			p.Base.Quota, p.Base.Period = c.Base.Quota, c.Base.Period
			v.Dynamic.Quotas = map[string]node.QuotaLoop{p.UID: tc.loop}
			pl, _ := container.Decide(v, p, c)
			pods, _ := pod.Decide(v, p, pod.Sums{})
			planned := tc.planned
			if planned == "" {
				planned = plan.Int(tc.period).String()
			}
			pt.Want(t, pl, want{"cpu.quota": tc.quota, "cpu.period": planned, "cpu.burst": tc.burst}, false)
			pt.Want(t, pods, want{"cpu.quota": tc.pod, "cpu.period": planned}, false)
			for _, s := range append(pl, pods...) {
				if (s.Knob == plan.CPUQuota || s.Knob == plan.CPUPeriod) && s.Observe != tc.watch {
					t.Errorf("%s is observed: %v", &s, s.Observe)
				}
			}
			if got := container.BaseQuota(v, p, c); got != tc.standing {
				t.Errorf("the loops reckon with a quota of %d, want %d", got, tc.standing)
			}
			if got := pod.BaseQuota(v, p); got != tc.standing {
				t.Errorf("and with %d for the pod, want %d", got, tc.standing)
			}
		})
	}
}
