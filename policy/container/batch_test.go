// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/container"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

type want = map[string]string

const cfsQuota = "resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota}"

func TestBatch(t *testing.T) {
	t.Parallel()
	mid := int64(750)
	for name, tc := range map[string]struct {
		class protocol.QoS
		spec  map[string]protocol.ExtendedContainer
		has   bool
		ratio unit.Ratio
		yaml  string
		kube  protocol.KubeQoS // where the pod stands; zero is where its class does
		held  bool             // the agent holds the class to a quota
		want  want
	}{
		"documented example": {
			class: protocol.QoSBE, spec: map[string]protocol.ExtendedContainer{"app": pt.Batch(500, 2*pt.GiB)},
			want: want{"cpu.shares": "512", "cpu.quota": "50000", "memory.limit": "2147483648"},
		},
		"limit 1500m":             {class: protocol.QoSBE, spec: map[string]protocol.ExtendedContainer{"app": pt.Batch(1500, 0)}, want: want{"cpu.shares": "1536", "cpu.quota": "150000"}},
		"limit 5m is raised":      {class: protocol.QoSBE, spec: map[string]protocol.ExtendedContainer{"app": pt.Batch(5, 0)}, want: want{"cpu.shares": "5", "cpu.quota": "1000"}},
		"normalised":              {class: protocol.QoSBE, ratio: 120, spec: map[string]protocol.ExtendedContainer{"app": pt.Batch(1000, 0)}, want: want{"cpu.shares": "1024", "cpu.quota": "83334"}},
		"cfsQuota suppression":    {class: protocol.QoSBE, held: true, spec: map[string]protocol.ExtendedContainer{"app": pt.Batch(1000, 0)}, want: want{"cpu.shares": "1024"}},
		"cfsQuota, nobody's":      {class: protocol.QoSBE, yaml: cfsQuota, spec: map[string]protocol.ExtendedContainer{"app": pt.Batch(1000, 0)}, want: want{"cpu.shares": "1024", "cpu.quota": "100000"}},
		"cfsQuota, with requests": {class: protocol.QoSBE, kube: protocol.KubeBurstable, yaml: cfsQuota, held: true, spec: map[string]protocol.ExtendedContainer{"app": pt.Batch(1000, 0)}, want: want{"cpu.shares": "1024", "cpu.quota": "100000"}},
		"memory only":             {class: protocol.QoSBE, spec: map[string]protocol.ExtendedContainer{"app": pt.Batch(0, pt.GiB)}, want: want{"memory.limit": "1073741824"}},
		"empty spec":              {class: protocol.QoSBE, has: true, want: want{}},
		"container not in spec":   {class: protocol.QoSBE, spec: map[string]protocol.ExtendedContainer{"other": pt.Batch(500, pt.GiB)}, want: want{}},
		"batch of a pod without label is left alone": {class: protocol.QoSNone, spec: map[string]protocol.ExtendedContainer{"app": pt.Batch(500, 0)}, want: want{}},
		"mid of an LS pod": {
			class: protocol.QoSLS, want: want{"cpu.shares": "768", "cpu.quota": "75000"},
			spec: map[string]protocol.ExtendedContainer{"app": {
				Requests: protocol.ExtendedResources{MidCPU: &mid}, Limits: protocol.ExtendedResources{MidCPU: &mid},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := pt.View()
			if tc.yaml != "" {
				pt.YAML(t, v, tc.yaml)
			}
			v.Dynamic.Normalization, v.Dynamic.BEQuota = tc.ratio, tc.held
			p := pt.Pod(tc.class)
			if tc.kube != protocol.KubeUnknown {
				p.KubeQoS = tc.kube
			}
			p.Ask.Extended, p.Ask.HasExtended = tc.spec, tc.has || tc.spec != nil
			pl, problems := container.Decide(v, p, pt.Container(p))
			if len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			pt.Want(t, pl, tc.want, true)
		})
	}
}

func TestBatchFromPodCache(t *testing.T) {
	t.Parallel()
	v, p := pt.View(), pt.Pod(protocol.QoSBE)
	v.Pods = map[string]node.PodSpec{p.UID: {Extended: map[string]protocol.ExtendedContainer{"app": pt.Batch(500, 0)}}}
	pl, _ := container.Decide(v, p, pt.Container(p))
	pt.Want(t, pl, want{"cpu.shares": "512", "cpu.quota": "50000"}, true)

	p.Ask.HasExtended = true // an annotation that names nobody wins over the cache
	pl, _ = container.Decide(v, p, pt.Container(p))
	pt.Want(t, pl, want{}, true)
}

func TestBatchKeepsKubernetesLimits(t *testing.T) {
	t.Parallel()
	v, p := pt.View(), pt.Pod(protocol.QoSBE)
	p.Ask.Extended = map[string]protocol.ExtendedContainer{"app": pt.Batch(500, 0)}
	c := pt.Container(p)
	c.Base.MemoryLimit = unit.Some(pt.GiB)
	pl, _ := container.Decide(v, p, c)
	pt.Want(t, pl, want{"cpu.shares": "512", "cpu.quota": "50000", "memory.limit": "-"}, false)
}
