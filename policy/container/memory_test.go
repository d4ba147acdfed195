// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/container"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

const m6 = "../../api/strategy/testdata/m06a-nodeslo-memory-tuning.yaml"

// TestMemoryF1 is table F1 of the worked scenarios, with the files M5 and M6a. Values of 0 are the kernel's own and not
// planned.
func TestMemoryF1(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file, yaml     string
		class          protocol.QoS
		request, limit unit.Bytes
		want           want
	}{
		"LSR M5": {file: m5, class: protocol.QoSLSR, request: 8 * pt.GiB, limit: 8 * pt.GiB, want: want{
			"memory.min": "8589934592", "memory.low": "8589934592", "memory.high": "10307919872",
			"memory.wmark_ratio": "95", "memory.wmark_scale_factor": "50", "memory.wmark_min_adj": "-25",
		}},
		"LSR M6": {file: m6, class: protocol.QoSLSR, request: 8 * pt.GiB, limit: 8 * pt.GiB, want: want{
			"memory.min": "8589934592", "memory.low": "8589934592", "memory.high": "10307919872",
			"memory.wmark_ratio": "95", "memory.wmark_scale_factor": "20", "memory.wmark_min_adj": "-25",
		}},
		"LS M5": {file: m5, class: protocol.QoSLS, request: 2 * pt.GiB, limit: 4 * pt.GiB, want: want{
			"memory.min": "-", "memory.low": "-", "memory.high": "4294967296",
			"memory.wmark_ratio": "90", "memory.wmark_scale_factor": "30", "memory.wmark_min_adj": "-25",
		}},
		"LS 20 %": {
			yaml:  "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, minLimitPercent: 20, lowLimitPercent: 20, throttlingPercent: 100}}}",
			class: protocol.QoSLS, request: 2 * pt.GiB, limit: 4 * pt.GiB,
			want: want{"memory.min": "429494272", "memory.low": "429494272", "memory.high": "4294967296"},
		},
		"BE M5": {file: m5, class: protocol.QoSBE, request: 2 * pt.GiB, limit: 2 * pt.GiB, want: want{
			"memory.min": "-", "memory.low": "-", "memory.high": "2147483648",
			"memory.wmark_ratio": "80", "memory.wmark_scale_factor": "30", "memory.wmark_min_adj": "50",
		}},
		"BE M6": {file: m6, class: protocol.QoSBE, request: 2 * pt.GiB, limit: 2 * pt.GiB, want: want{
			"memory.min": "-", "memory.low": "-", "memory.high": "1717985280",
			"memory.wmark_ratio": "75", "memory.wmark_scale_factor": "20", "memory.wmark_min_adj": "50",
		}},
		"50 %": {
			yaml:  "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, throttlingPercent: 50}}}",
			class: protocol.QoSLS, request: pt.GiB, limit: 2 * pt.GiB, want: want{"memory.high": "1073741824"},
		},
		"50 % upstream": {
			yaml:  "resourceQOSStrategy: {policies: {memoryHighPolicy: requestLimitRange}, lsClass: {memoryQOS: {enable: true, throttlingPercent: 50}}}",
			class: protocol.QoSLS, request: pt.GiB, limit: 2 * pt.GiB, want: want{"memory.high": "1610612736"},
		},
		"BE M6 upstream has no effect": {
			yaml:  "resourceQOSStrategy: {policies: {memoryHighPolicy: requestLimitRange}, beClass: {memoryQOS: {enable: true, throttlingPercent: 80}}}",
			class: protocol.QoSBE, request: 2 * pt.GiB, limit: 2 * pt.GiB, want: want{"memory.high": "2147483648"},
		},
		"the levels of F2": {
			yaml:  "resourceQOSStrategy: {lsrClass: {memoryQOS: {enable: true, minLimitPercent: 25, lowLimitPercent: 50, throttlingPercent: 75, wmarkRatio: 80}}}",
			class: protocol.QoSLSR, request: 4 * pt.GiB, limit: 4 * pt.GiB, want: want{
				"memory.min": "1073741824", "memory.low": "2147483648", "memory.high": "3221225472", "memory.wmark_ratio": "80",
			},
		},
		"no limit": {
			yaml:  "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, throttlingPercent: 50}}}",
			class: protocol.QoSLS, request: pt.GiB, want: want{"memory.high": "64424509440"},
		},
		"no limit upstream": {
			yaml:  "resourceQOSStrategy: {policies: {memoryHighPolicy: requestLimitRange}, lsClass: {memoryQOS: {enable: true, throttlingPercent: 50}}}",
			class: protocol.QoSLS, request: pt.GiB, want: want{"memory.high": "64961380352"},
		},
		"throttling 0": {
			yaml:  "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, throttlingPercent: 0}}}",
			class: protocol.QoSLS, request: pt.GiB, limit: 2 * pt.GiB, want: want{"memory.high": "-"},
		},
		"low below min is raised": {
			yaml:  "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, minLimitPercent: 50, lowLimitPercent: 10}}}",
			class: protocol.QoSLS, request: 2 * pt.GiB, limit: 4 * pt.GiB, want: want{"memory.min": "1073741824", "memory.low": "1073741824"},
		},
		"high never below low": {
			yaml:  "resourceQOSStrategy: {lsrClass: {memoryQOS: {enable: true, lowLimitPercent: 100, throttlingPercent: 50}}}",
			class: protocol.QoSLSR, request: 8 * pt.GiB, limit: 8 * pt.GiB, want: want{"memory.low": "8589934592", "memory.high": "8589934592"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.Vendor(pt.View()), pt.Pod(tc.class)
			if tc.file != "" {
				file(t, v, tc.file)
			} else {
				pt.YAML(t, v, tc.yaml)
			}
			c := pt.Container(p)
			c.Base.MemoryLimit = unit.Some(int64(max(tc.limit, -1)))
			if tc.limit == 0 {
				c.Base.MemoryLimit = unit.Opt{}
			}
			if tc.class == protocol.QoSBE {
				c.Base.MemoryLimit = unit.Opt{}
				p.Ask.Extended = map[string]protocol.ExtendedContainer{"app": pt.Batch(1000, int64(tc.limit))}
			} else {
				pt.Cache(v, p, map[string]node.ContainerSpec{"app": {MemoryRequest: tc.request, MemoryLimit: tc.limit}})
			}
			pl, problems := container.Decide(v, p, c)
			pt.Want(t, pl, tc.want, false)
			if len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
		})
	}
}

func TestMemoryRequestSource(t *testing.T) {
	t.Parallel()
	const half = "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, minLimitPercent: 100}}, lsrClass: {memoryQOS: {enable: true, minLimitPercent: 100}}}"
	for name, tc := range map[string]struct {
		class protocol.QoS
		kube  protocol.KubeQoS
		adj   int64
		limit int64
		want  string
		why   string
	}{
		// 16 × 0.1 % of 128 GiB = 16 × 137438953 = 2199023248, down to a page.
		"documented example":      {class: protocol.QoSLS, kube: protocol.KubeBurstable, adj: 984, limit: 4 * pt.GiB, want: "2199019520", why: "estimated from oom_score_adj"},
		"never above the limit":   {class: protocol.QoSLS, kube: protocol.KubeBurstable, adj: 900, limit: pt.GiB, want: "1073741824"},
		"no request":              {class: protocol.QoSLS, kube: protocol.KubeBurstable, adj: 999, limit: pt.GiB, want: "-"},
		"kubelet's floor":         {class: protocol.QoSLS, kube: protocol.KubeBurstable, adj: 3, limit: pt.GiB, want: "-"},
		"Guaranteed is its limit": {class: protocol.QoSLSR, kube: protocol.KubeGuaranteed, adj: -997, limit: pt.GiB, want: "1073741824"},
		"unknown":                 {class: protocol.QoSLS, kube: protocol.KubeUnknown, adj: 900, limit: pt.GiB, want: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.YAML(t, pt.View(), half), pt.Pod(tc.class)
			p.KubeQoS = tc.kube
			c := pt.Container(p)
			c.Base.OOMScoreAdj, c.Base.MemoryLimit = unit.Some(tc.adj), unit.Some(tc.limit)
			pl, _ := container.Decide(v, p, c)
			pt.Want(t, pl, want{"memory.min": tc.want}, false)
			if s := pl.Get(plan.MemoryMin); s != nil && !strings.Contains(s.Reason, tc.why) {
				t.Errorf("reason %q, want %q", s.Reason, tc.why)
			}
		})
	}
}

func TestMemoryAnnotation(t *testing.T) {
	t.Parallel()
	off, one, zero, pct := false, int64(1), int64(0), int64(50)
	const enabled = "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, minLimitPercent: 20, throttlingPercent: 90}}}"
	ask := func(policy string, q strategy.MemoryQOS) *protocol.MemoryQOS {
		return &protocol.MemoryQOS{Policy: policy, MemoryQOS: q}
	}
	for name, tc := range map[string]struct {
		yaml string
		ask  *protocol.MemoryQOS
		most unit.Percent
		base map[string]string
		want want
		why  string
	}{
		"none switches off":      {yaml: enabled, ask: ask("none", strategy.MemoryQOS{MinLimitPercent: &pct}), want: want{"memory.min": "-", "memory.high": "-"}},
		"enable false":           {yaml: enabled, ask: ask("auto", strategy.MemoryQOS{Enable: &off}), want: want{"memory.min": "-", "memory.high": "-"}},
		"default follows":        {yaml: enabled, ask: ask("default", strategy.MemoryQOS{}), want: want{"memory.min": "429494272"}},
		"overlay":                {yaml: enabled, ask: ask("", strategy.MemoryQOS{MinLimitPercent: &pct}), want: want{"memory.min": "1073741824", "memory.high": "3865468928"}, why: "with annotation memoryQOS"},
		"fields without class":   {ask: ask("", strategy.MemoryQOS{LowLimitPercent: &pct}), want: want{"memory.min": "-", "memory.low": "1073741824", "memory.high": "-"}, why: "50% of request (annotation memoryQOS)"},
		"capped":                 {ask: ask("auto", strategy.MemoryQOS{MinLimitPercent: &pct}), most: 10, want: want{"memory.min": "214745088"}, why: "capped by the node"},
		"group kill":             {ask: ask("auto", strategy.MemoryQOS{OomKillGroup: &one}), want: want{"memory.oom.group": "1"}},
		"group kill off":         {ask: ask("auto", strategy.MemoryQOS{OomKillGroup: &zero}), want: want{"memory.oom.group": "0"}},
		"class leaves kubelet's": {yaml: enabled, want: want{"memory.oom.group": "-"}},
		"kubelet protects none":  {yaml: enabled, base: map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "2"}, want: want{"memory.min": "429494272", "memory.low": "429494272", "memory.high": "-"}},
		"kubelet's MemoryQoS":    {yaml: enabled, base: map[string]string{"memory.min": "1", "memory.high": "2"}, want: want{"memory.min": "-", "memory.low": "429494272", "memory.high": "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.YAML(t, pt.View(), tc.yaml), pt.Pod(protocol.QoSLS)
			if tc.most > 0 {
				v.Limits.MemoryMinPercent = tc.most
			}
			p.Ask.MemoryQOS = tc.ask
			pt.Cache(v, p, map[string]node.ContainerSpec{"app": {MemoryRequest: 2 * pt.GiB, MemoryLimit: 4 * pt.GiB}})
			c := pt.Container(p)
			c.Base.Unified = tc.base
			pl, _ := container.Decide(v, p, c)
			pt.Want(t, pl, tc.want, false)
			if !strings.Contains(pl.String(), tc.why) {
				t.Errorf("want reason %q in\n%s", tc.why, pl)
			}
		})
	}
}

func TestMemoryPriority(t *testing.T) {
	t.Parallel()
	const yaml = "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, priorityEnable: 1, priority: 7}}}"
	p := pt.Pod(protocol.QoSLS)
	pl, _ := container.Decide(pt.YAML(t, pt.Vendor(pt.View()), yaml), p, pt.Container(p))
	pt.Want(t, pl, want{"memory.priority": "7", "memory.use_priority_oom": "1"}, false)
	pl, _ = container.Decide(pt.YAML(t, pt.View(), yaml), p, pt.Container(p))
	pt.Want(t, pl, want{"memory.priority": "-", "memory.use_priority_oom": "-"}, false)
}

// A low that is raised to min says so: its own percentage would not explain the value.
func TestReasonOfRaisedLow(t *testing.T) {
	t.Parallel()
	v, p := pt.View(), pt.Pod(protocol.QoSLS)
	pt.YAML(t, v, "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, minLimitPercent: 50}}}")
	c := pt.Container(p)
	pt.Cache(v, p, map[string]node.ContainerSpec{"app": {MemoryRequest: 2 * pt.GiB, MemoryLimit: 4 * pt.GiB}})
	pl, _ := container.Decide(v, p, c)
	s := pl.Get(plan.MemoryLow)
	if s == nil || s.Value.Int() != pt.GiB || !strings.HasPrefix(s.Reason, "50% of request, raised to memory.min (") {
		t.Errorf("memory.low: %+v", s)
	}
}
