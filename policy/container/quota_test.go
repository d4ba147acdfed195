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
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/container"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// quotaCase is a container with what its quota is composed of, and the quota that comes out.
type quotaCase struct {
	class protocol.QoS
	ratio unit.Ratio
	// base is the kubelet's quota, batch the batch-cpu limit; 0 is no batch-cpu.
	base, batch int64
	cpus        string
	modes       map[protocol.Feature]node.Mode
	loop        node.QuotaLoop
	// quota is the container's, pod its pod's where the test asks for it; "-" for none.
	quota, pod string
	owner      protocol.Feature
	reason     string
	watch      bool
}

// build is the node without the loop, and the container with its pod.
func (tc *quotaCase) build() (*node.View, *workload.Pod, *workload.Container) {
	v, p := pt.View(), pt.Pod(tc.class)
	v.Dynamic.Normalization = tc.ratio
	for f, m := range tc.modes {
		v.Modes[f] = m
	}
	if tc.cpus != "" {
		p.Ask.ResourceStatus = &protocol.ResourceStatus{CPUSet: tc.cpus}
	}
	if tc.batch > 0 {
		p.Ask.Extended = map[string]protocol.ExtendedContainer{"app": pt.Batch(tc.batch, 0)}
	}
	c := pt.Container(p)
	c.Base.Quota = unit.Some(tc.base)
	return v, p, c
}

// check compares the container's plan.
func (tc *quotaCase) check(t *testing.T, pl plan.Plan) {
	t.Helper()
	pt.Want(t, pl, want{"cpu.quota": tc.quota}, false)
	s := pl.Get(plan.CPUQuota)
	if s != nil && (s.Owner != tc.owner || s.Observe != tc.watch || !strings.Contains(s.Reason, tc.reason)) {
		t.Errorf("got %s, want owner %s observe %v reason %q", s, tc.owner, tc.watch, tc.reason)
	}
}

func TestQuotaChain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]quotaCase{
		"documented example":    {class: protocol.QoSLS, ratio: 120, base: 400000, quota: "333334", owner: protocol.FeatureNormalization, reason: "kubelet 400000, divided by ratio 1.20"},
		"no label":              {class: protocol.QoSNone, ratio: 120, base: 400000, quota: "333334", owner: protocol.FeatureNormalization},
		"ratio 1":               {class: protocol.QoSLS, ratio: 100, base: 400000, quota: "-"},
		"unlimited stays":       {class: protocol.QoSLS, ratio: 120, base: -1, quota: "-"},
		"zero means unlimited":  {class: protocol.QoSLS, ratio: 120, base: 0, quota: "-"},
		"at least the minimum":  {class: protocol.QoSLS, ratio: 500, base: 1200, quota: "1000", owner: protocol.FeatureNormalization},
		"SYSTEM is not divided": {class: protocol.QoSSystem, ratio: 120, base: 400000, quota: "-"},
		"LSR without CPUs":      {class: protocol.QoSLSR, ratio: 120, base: 400000, quota: "-"},
		"LSR with CPUs":         {class: protocol.QoSLSR, ratio: 120, base: 400000, cpus: "0-1", quota: "-1", owner: protocol.FeatureCPUSet, reason: "owns its CPUs"},
		"no label with CPUs":    {class: protocol.QoSNone, ratio: 120, base: 400000, cpus: "0-1", quota: "-1", owner: protocol.FeatureCPUSet},
		"batch then ratio":      {class: protocol.QoSBE, ratio: 200, base: -1, batch: 1000, quota: "50000", owner: protocol.FeatureNormalization, reason: "batch-cpu limit 1000m, divided by ratio 2.00"},
		"observed ratio":        {class: protocol.QoSLS, ratio: 120, base: 400000, modes: map[protocol.Feature]node.Mode{protocol.FeatureNormalization: node.Observe}, quota: "333334", owner: protocol.FeatureNormalization, watch: true},
		"observed batch under an active ratio is not written": {
			class: protocol.QoSBE, ratio: 200, base: -1, batch: 1000, watch: true, quota: "50000", owner: protocol.FeatureNormalization,
			modes: map[protocol.Feature]node.Mode{protocol.FeatureBatch: node.Observe},
		},
		"cpuset off keeps the ratio": {class: protocol.QoSNone, ratio: 120, base: 400000, cpus: "0-1", modes: map[protocol.Feature]node.Mode{protocol.FeatureCPUSet: node.Off}, quota: "333334", owner: protocol.FeatureNormalization},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p, c := tc.build()
			pl, _ := container.Decide(v, p, c)
			tc.check(t, pl)
		})
	}
}

func TestBurst(t *testing.T) {
	t.Parallel()
	policy, percent := "auto", int64(200)
	none := "none"
	for name, tc := range map[string]struct {
		class protocol.QoS
		yaml  string
		ask   *protocol.CPUBurst
		ratio unit.Ratio
		cpus  string
		most  unit.Percent
		quota int64
		limit unit.MilliCPU // of the pod cache
		want  string
		why   string
	}{
		"a smaller limit is coming":    {class: protocol.QoSLS, yaml: "auto", limit: 500, want: "50000", why: "1000% of limit 500m, held at the quota that this limit is about to have"},
		"a smaller one under a ratio":  {class: protocol.QoSLS, yaml: "auto", limit: 500, ratio: 200, want: "25000"},
		"a smaller one holds it":       {class: protocol.QoSLS, yaml: "auto, cpuBurstPercent: 50", limit: 500, want: "25000", why: "50% of limit 500m"},
		"a larger limit is coming":     {class: protocol.QoSLS, yaml: "auto", limit: 3000, want: "200000", why: "1000% of limit 3000m, held at the quota"},
		"below the smallest quota":     {class: protocol.QoSLS, yaml: "auto", limit: 5, quota: 1000, want: "1000"},
		"documented example":           {class: protocol.QoSLS, yaml: "auto", want: "200000", why: "1000% of limit 2000m, held at the quota"},
		"half":                         {class: protocol.QoSLS, yaml: "auto, cpuBurstPercent: 50", want: "100000"},
		"cpuBurstOnly":                 {class: protocol.QoSNone, yaml: "cpuBurstOnly, cpuBurstPercent: 50", want: "100000"},
		"quota policy has none":        {class: protocol.QoSLS, yaml: "cfsQuotaBurstOnly", want: "-"},
		"none":                         {class: protocol.QoSLS, yaml: "none", want: "-"},
		"LSR":                          {class: protocol.QoSLSR, yaml: "auto", want: "-"},
		"LSE":                          {class: protocol.QoSLSE, yaml: "auto", want: "-"},
		"BE":                           {class: protocol.QoSBE, yaml: "auto", want: "-"},
		"without quota":                {class: protocol.QoSLS, yaml: "auto", quota: -1, want: "-"},
		"owns CPUs":                    {class: protocol.QoSNone, yaml: "auto", cpus: "0-1", want: "-"},
		"below the final quota":        {class: protocol.QoSLS, yaml: "auto", ratio: 200, want: "100000"},
		"annotation switches on":       {class: protocol.QoSLS, yaml: "none, cpuBurstPercent: 10", ask: &protocol.CPUBurst{Policy: &policy}, want: "20000"},
		"annotation switches off":      {class: protocol.QoSLS, yaml: "auto", ask: &protocol.CPUBurst{Policy: &none}, want: "-"},
		"annotation percent is capped": {class: protocol.QoSLS, yaml: "auto", ask: &protocol.CPUBurst{CPUBurstPercent: &percent}, most: 40, want: "80000", why: "capped by the node's cpuBurstPercentMax"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.YAML(t, pt.View(), "cpuBurstStrategy: {policy: "+tc.yaml+"}"), pt.Pod(tc.class)
			v.Dynamic.Normalization = tc.ratio
			if tc.most > 0 {
				v.Limits.CPUBurstPercentMax = tc.most
			}
			p.Ask.CPUBurst = tc.ask
			if tc.cpus != "" {
				p.Ask.ResourceStatus = &protocol.ResourceStatus{CPUSet: tc.cpus}
			}
			c := pt.Container(p)
			if tc.quota != 0 {
				c.Base.Quota = unit.Some(tc.quota)
			}
			if tc.limit != 0 {
				pt.Cache(v, p, map[string]node.ContainerSpec{c.Name: {CPULimit: tc.limit}})
			}
			pl, _ := container.Decide(v, p, c)
			pt.Want(t, pl, want{"cpu.burst": tc.want}, false)
			if s := pl.Get(plan.CPUBurst); s != nil && !strings.Contains(s.Reason, tc.why) {
				t.Errorf("reason %q, want %q", s.Reason, tc.why)
			}
		})
	}
}
