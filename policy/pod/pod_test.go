// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod_test

import (
	"os"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/pod"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

type want = map[string]string

const cfsQuota = "resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota}"

const m5 = "../../api/strategy/testdata/m05-nodeslo.yaml"

type spec = map[string]protocol.ExtendedContainer

func TestBatch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec  spec
		has   bool
		cache map[string]node.ContainerSpec
		v1    bool
		ratio unit.Ratio
		yaml  string
		kube  protocol.KubeQoS // where the pod stands; zero is below besteffort
		held  bool             // the agent holds that to a quota
		want  want
	}{
		"documented example":   {spec: spec{"app": pt.Batch(1000, 2*pt.GiB), "sidecar": pt.Batch(500, pt.GiB)}, want: want{"cpu.shares": "1536", "cpu.quota": "150000", "memory.limit": "3221225472"}},
		"one without limits":   {spec: spec{"app": pt.Batch(1000, 2*pt.GiB), "sidecar": {}}, want: want{"cpu.shares": "1024"}},
		"one without memory":   {spec: spec{"app": pt.Batch(1000, 2*pt.GiB), "sidecar": pt.Batch(500, 0)}, want: want{"cpu.shares": "1536", "cpu.quota": "150000"}},
		"empty spec":           {has: true, want: want{}},
		"injected sidecar":     {spec: spec{"app": pt.Batch(1000, 2*pt.GiB)}, cache: map[string]node.ContainerSpec{"app": {}, "proxy": {}}, want: want{"cpu.shares": "1024"}},
		"sidecar with limits":  {spec: spec{"app": pt.Batch(1000, 2*pt.GiB)}, cache: map[string]node.ContainerSpec{"app": {}, "proxy": {CPURequest: 100, CPULimit: 500, MemoryLimit: pt.GiB}}, want: want{"cpu.shares": "1024", "cpu.quota": "150000", "memory.limit": "3221225472"}},
		"normalised on v2":     {spec: spec{"app": pt.Batch(1000, 0)}, ratio: 200, want: want{"cpu.shares": "1024", "cpu.quota": "50000"}},
		"not normalised on v1": {spec: spec{"app": pt.Batch(1000, 0)}, ratio: 200, v1: true, want: want{"cpu.shares": "1024", "cpu.quota": "100000"}},
		"cfsQuota suppression": {spec: spec{"app": pt.Batch(1000, 0)}, held: true, want: want{"cpu.shares": "1024"}},
		"cfsQuota, nobody's":   {spec: spec{"app": pt.Batch(1000, 0)}, yaml: cfsQuota, want: want{"cpu.shares": "1024", "cpu.quota": "100000"}},
		// Below another class' directory its quota is the only one: label BE, some requests, a limit of one CPU.
		"cfsQuota, Burstable":  {spec: spec{"app": pt.Batch(1000, 0)}, kube: protocol.KubeBurstable, cache: map[string]node.ContainerSpec{"app": {CPURequest: 100}}, yaml: cfsQuota, held: true, want: want{"cpu.shares": "1024", "cpu.quota": "100000"}},
		"cfsQuota, Guaranteed": {spec: spec{"app": pt.Batch(1000, 0)}, kube: protocol.KubeGuaranteed, cache: map[string]node.ContainerSpec{"app": {CPURequest: 100}}, yaml: cfsQuota, held: true, want: want{"cpu.shares": "1024", "cpu.quota": "100000"}},
		"absurd amounts":       {spec: spec{"a": pt.Batch(1<<62, 1<<62), "b": pt.Batch(1<<62, 1<<62)}, want: want{"cpu.shares": "262144", "memory.limit": "2305843009213693952"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.YAML(t, pt.View(), tc.yaml), pt.Pod(protocol.QoSBE)
			if tc.v1 {
				v.Kernel.Cgroup = node.CgroupV1
			}
			v.Dynamic.Normalization, v.Dynamic.BEQuota = tc.ratio, tc.held
			if tc.kube != protocol.KubeUnknown {
				p.KubeQoS = tc.kube
			}
			if tc.cache != nil {
				pt.Cache(v, p, tc.cache)
			}
			p.Ask.Extended, p.Ask.HasExtended = tc.spec, tc.has
			pl, problems := pod.Decide(v, p, pod.Sums{})
			pt.Want(t, pl, tc.want, true)
			if len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	schedIdle := func(v *node.View) { *v.Strategy.ResourceQOSStrategy.BEClass.CPUQOS.SchedIdle = 1 }
	for name, tc := range map[string]struct {
		class  protocol.QoS
		kube   protocol.KubeQoS
		change func(*node.View)
		bare   bool
		want   want
	}{
		"BE keeps its shares":     {class: protocol.QoSBE, kube: protocol.KubeBestEffort, want: want{"cpu.idle": "-", "cpu.shares": "512", "cpu.bvt": "-"}},
		"BE with schedIdle":       {class: protocol.QoSBE, kube: protocol.KubeBestEffort, change: schedIdle, want: want{"cpu.idle": "1", "cpu.shares": "-", "cpu.bvt": "-"}},
		"BE without batch-cpu":    {class: protocol.QoSBE, kube: protocol.KubeBestEffort, bare: true, want: want{"cpu.idle": "1", "cpu.shares": "-"}},
		"BE with CPU requests":    {class: protocol.QoSBE, kube: protocol.KubeBurstable, want: want{"cpu.idle": "-", "cpu.shares": "512"}},
		"BE without cpu.idle":     {class: protocol.QoSBE, kube: protocol.KubeBestEffort, change: func(v *node.View) { schedIdle(v); v.Kernel.Knobs[plan.CPUIdle].OK = false }, want: want{"cpu.idle": "-", "cpu.shares": "512"}},
		"BE observed":             {class: protocol.QoSBE, kube: protocol.KubeBestEffort, change: func(v *node.View) { schedIdle(v); v.Modes[protocol.FeatureIdentity] = node.Observe }, want: want{"cpu.idle": "1", "cpu.shares": "512"}},
		"BE on a vendor kernel":   {class: protocol.QoSBE, kube: protocol.KubeBestEffort, change: func(v *node.View) { pt.Vendor(v) }, want: want{"cpu.idle": "-", "cpu.shares": "512", "cpu.bvt": "-1"}},
		"LS on a vendor kernel":   {class: protocol.QoSLS, kube: protocol.KubeBurstable, change: func(v *node.View) { pt.Vendor(v) }, want: want{"cpu.idle": "-", "cpu.bvt": "2"}},
		"LS":                      {class: protocol.QoSLS, kube: protocol.KubeBurstable, want: want{"cpu.idle": "-", "cpu.bvt": "-"}},
		"BE of a strategy, empty": {class: protocol.QoSBE, kube: protocol.KubeBestEffort, change: func(v *node.View) { pt.YAML(t, v, "") }, want: want{"cpu.idle": "-", "cpu.shares": "512"}},
	} {
		v, p := file(t, pt.View(), m5), pt.Pod(tc.class)
		if tc.change != nil {
			tc.change(v)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p.KubeQoS = tc.kube
			if !tc.bare {
				p.Ask.Extended = spec{"app": pt.Batch(500, 0)}
			}
			pl, _ := pod.Decide(v, p, pod.Sums{})
			pt.Want(t, pl, tc.want, false)
		})
	}
}

func TestQuotaAndBurst(t *testing.T) {
	t.Parallel()
	const burst = "cpuBurstStrategy: {policy: auto, cpuBurstPercent: 50}"
	for name, tc := range map[string]struct {
		class protocol.QoS
		cpus  string
		ratio unit.Ratio
		cache map[string]node.ContainerSpec
		want  want
	}{
		"LSR owns CPUs":     {class: protocol.QoSLSR, cpus: "0-1", want: want{"cpu.quota": "-1", "cpu.burst": "-"}},
		"LSR without":       {class: protocol.QoSLSR, want: want{"cpu.quota": "-", "cpu.burst": "-"}},
		"LS from the pod":   {class: protocol.QoSLS, want: want{"cpu.quota": "-", "cpu.burst": "100000"}},
		"LS from the cache": {class: protocol.QoSLS, cache: map[string]node.ContainerSpec{"a": {CPULimit: 500}, "b": {CPULimit: 500}}, want: want{"cpu.burst": "50000"}},
		"one without limit": {class: protocol.QoSLS, cache: map[string]node.ContainerSpec{"a": {CPULimit: 500}, "b": {}}, want: want{"cpu.burst": "100000"}},
		"LS normalised":     {class: protocol.QoSLS, ratio: 400, want: want{"cpu.quota": "50000", "cpu.burst": "50000"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.YAML(t, pt.View(), burst), pt.Pod(tc.class)
			v.Dynamic.Normalization = tc.ratio
			if tc.cache != nil {
				pt.Cache(v, p, tc.cache)
			}
			if tc.cpus != "" {
				p.Ask.ResourceStatus = &protocol.ResourceStatus{CPUSet: tc.cpus}
			}
			pl, _ := pod.Decide(v, p, pod.Sums{})
			pt.Want(t, pl, tc.want, false)
		})
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	const half = "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, minLimitPercent: 50, lowLimitPercent: 60}}}"
	for name, tc := range map[string]struct {
		file, yaml string
		class      protocol.QoS
		cache      map[string]node.ContainerSpec
		sum        pod.Sums
		change     func(*node.View)
		want       want
		why        string
	}{
		"LSR M5 with room, documented example": {file: m5, class: protocol.QoSLSR, want: want{
			"memory.min": "8589934592", "memory.low": "8589934592", "memory.limit": "8724152320", "memory.high": "-",
		}, why: "meet their own limit first"},
		"no room on v1":           {file: m5, class: protocol.QoSLSR, change: func(v *node.View) { v.Kernel.Cgroup = node.CgroupV1 }, want: want{"memory.limit": "-"}},
		"no room without min":     {file: m5, class: protocol.QoSLSR, change: func(v *node.View) { v.Kernel.Knobs[plan.MemoryMin].OK = false }, want: want{"memory.limit": "-"}},
		"LS M5":                   {file: m5, class: protocol.QoSLS, want: want{"memory.min": "-", "memory.low": "-", "memory.limit": "-"}},
		"LS unknown at first":     {yaml: half, class: protocol.QoSLS, want: want{"memory.min": "-", "memory.low": "-"}},
		"LS from its containers":  {yaml: half, class: protocol.QoSLS, sum: pod.Sums{Count: 2, Min: pt.GiB, Low: 2 * pt.GiB}, want: want{"memory.min": "1073741824", "memory.low": "2147483648", "memory.limit": "-"}},
		"tight container":         {yaml: half, class: protocol.QoSLS, sum: pod.Sums{Count: 1, Min: pt.GiB, Tight: true}, want: want{"memory.limit": "4362076160"}},
		"LS from the cache":       {yaml: half, class: protocol.QoSLS, cache: map[string]node.ContainerSpec{"a": {MemoryRequest: pt.GiB}, "b": {MemoryRequest: pt.GiB}}, want: want{"memory.min": "1073741824", "memory.low": "1288486912"}},
		"the larger of both":      {yaml: half, class: protocol.QoSLS, sum: pod.Sums{Min: 4096}, cache: map[string]node.ContainerSpec{"a": {MemoryRequest: pt.GiB}}, want: want{"memory.min": "536870912"}},
		"kubelet's MemoryQoS":     {file: m5, class: protocol.QoSLSR, change: func(v *node.View) { v.Kernel.KubeletMemoryQoS = true }, want: want{"memory.min": "-", "memory.low": "-"}},
		"off":                     {file: m5, class: protocol.QoSLSR, change: func(v *node.View) { v.Modes[protocol.FeatureMemory] = node.Off }, want: want{"memory.min": "-", "memory.limit": "-"}},
		"observed":                {file: m5, class: protocol.QoSLSR, change: func(v *node.View) { v.Modes[protocol.FeatureMemory] = node.Observe }, want: want{"memory.min": "8589934592", "memory.limit": "8724152320"}, why: "observe-only"},
		"wmark on vendor kernels": {file: m5, class: protocol.QoSBE, change: func(v *node.View) { pt.Vendor(v) }, want: want{"memory.wmark_ratio": "80", "memory.wmark_scale_factor": "30", "memory.wmark_min_adj": "50"}},
		"page cache": {
			yaml:  "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, pageCacheEnable: true, pageCacheLimitPercent: 50, pageCacheReclaimSync: true}}}",
			class: protocol.QoSLS, change: func(v *node.View) { pt.Vendor(v) },
			want: want{"memory.pagecache_limit.size": "2147483648", "memory.pagecache_limit.enable": "1", "memory.pagecache_limit.sync": "1"},
		},
		"page cache size": {
			yaml:  "resourceQOSStrategy: {lsClass: {memoryQOS: {enable: true, pageCacheEnable: true, pageCacheLimitPercent: 50, pageCacheLimitSize: 1Gi}}}",
			class: protocol.QoSLS, change: func(v *node.View) { pt.Vendor(v) },
			want: want{"memory.pagecache_limit.size": "1073741824", "memory.pagecache_limit.enable": "1", "memory.pagecache_limit.sync": "-"},
		},
	} {
		v, p := pt.YAML(t, pt.View(), tc.yaml), pt.Pod(tc.class)
		if tc.file != "" {
			file(t, v, tc.file)
		}
		if tc.cache != nil {
			pt.Cache(v, p, tc.cache)
		}
		if tc.change != nil {
			tc.change(v)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pl, _ := pod.Decide(v, p, tc.sum)
			pt.Want(t, pl, tc.want, false)
			if !strings.Contains(pl.String(), tc.why) {
				t.Errorf("want %q in\n%s", tc.why, pl)
			}
		})
	}
}

func TestBlkIO(t *testing.T) {
	t.Parallel()
	block := func(name, kind string, c strategy.IOCfg) strategy.Block {
		return strategy.Block{Name: name, Type: kind, IOCfg: c}
	}
	n, zero, weight, big, slow, fast := int64(1000), int64(0), int64(50), int64(500), int64(8000), int64(3000)
	for name, tc := range map[string]struct {
		class   protocol.QoS
		blocks  []strategy.Block
		yaml    string
		change  func(*node.View)
		want    want
		problem string
	}{
		"all of a device": {class: protocol.QoSLS, blocks: []strategy.Block{block("sda", "device", strategy.IOCfg{
			ReadBPS: &n, WriteBPS: &n, ReadIOPS: &n, WriteIOPS: &n, IOWeightPercent: &weight, ReadLatency: &slow, WriteLatency: &fast,
		})}, want: want{
			"io.read_bps[8:0]": "1000", "io.write_bps[8:0]": "1000", "io.read_iops[8:0]": "1000", "io.write_iops[8:0]": "1000",
			"io.weight[8:0]": "50", "io.latency[8:0]": "3000",
		}},
		"zero is unlimited":                     {class: protocol.QoSLS, blocks: []strategy.Block{block("sda", "device", strategy.IOCfg{ReadBPS: &zero, WriteBPS: &n})}, want: want{"io.write_bps[8:0]": "1000"}},
		"switched off by the node":              {class: protocol.QoSLS, blocks: []strategy.Block{block("sda", "device", strategy.IOCfg{IOWeightPercent: &weight, ReadBPS: &weight, ReadLatency: &weight})}, change: func(v *node.View) { v.Limits.BlkIO = false }, want: want{}, problem: "limits.blkIO"},
		"weight over 100":                       {class: protocol.QoSLS, blocks: []strategy.Block{block("sda", "device", strategy.IOCfg{IOWeightPercent: &big})}, want: want{"io.weight[8:0]": "100"}},
		"fields that nobody reads":              {class: protocol.QoSLS, blocks: []strategy.Block{block("sda", "device", strategy.IOCfg{ReadBPS: &n, WriteLatencyPercent: &n, ModelWriteRandIOPS: &n})}, want: want{"io.read_bps[8:0]": "1000"}, problem: "writeLatencyPercent, modelWriteRandIOPS of \"sda\" set nothing"},
		"volume group":                          {class: protocol.QoSLS, blocks: []strategy.Block{block("vg0", "volumegroup", strategy.IOCfg{ReadBPS: &n}), block("sda", "device", strategy.IOCfg{ReadBPS: &n})}, want: want{"io.read_bps[8:0]": "1000"}, problem: "is not resolved here: name its disk"},
		"unknown device":                        {class: protocol.QoSLS, blocks: []strategy.Block{block("sdz\n", "device", strategy.IOCfg{ReadBPS: &n})}, want: want{}, problem: `no block device "sdz\n"`},
		"class BE":                              {class: protocol.QoSBE, yaml: pt.Everything, want: want{"io.read_bps[8:0]": "1048576"}},
		"annotation wins":                       {class: protocol.QoSBE, yaml: pt.Everything, blocks: []strategy.Block{block("sda", "device", strategy.IOCfg{ReadBPS: &n})}, want: want{"io.read_bps[8:0]": "1000"}},
		"v1 pods carry weight and latency only": {class: protocol.QoSLS, change: func(v *node.View) { v.Kernel.Cgroup = node.CgroupV1 }, blocks: []strategy.Block{block("sda", "device", strategy.IOCfg{ReadBPS: &n, IOWeightPercent: &weight})}, want: want{"io.weight[8:0]": "50"}},
	} {
		v, p := pt.YAML(t, pt.View(), tc.yaml), pt.Pod(tc.class)
		if tc.change != nil {
			tc.change(v)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p.Ask.BlkIO = tc.blocks
			pl, problems := pod.Decide(v, p, pod.Sums{})
			var io plan.Plan
			for i := range pl {
				if pl[i].Owner == protocol.FeatureBlkIO {
					io = append(io, pl[i])
				}
			}
			pt.Want(t, io, tc.want, true)
			if tc.problem == "" && len(problems) > 0 || tc.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0].String(), tc.problem)) {
				t.Errorf("problems %v, want %q", problems, tc.problem)
			}
		})
	}
}

func TestNothingToDo(t *testing.T) {
	t.Parallel()
	for _, class := range []protocol.QoS{protocol.QoSNone, protocol.QoSLSR, protocol.QoSLS, protocol.QoSBE, protocol.QoSSystem} {
		p := pt.Pod(class)
		if pl, problems := pod.Decide(pt.Vendor(pt.View()), p, pod.Sums{}); pl != nil || problems != nil {
			t.Errorf("%s under a strategy that enables nothing: %v %v", class, pl, problems)
		}
		v := pt.YAML(t, pt.Vendor(pt.View()), pt.Everything)
		p.Ask.Extended = spec{"app": pt.Batch(500, pt.GiB)}
		for f := range v.Modes {
			v.Modes[f] = node.Off
		}
		if pl, problems := pod.Decide(v, p, pod.Sums{}); pl != nil || problems != nil {
			t.Errorf("%s with every feature off: %v %v", class, pl, problems)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	v := pt.YAML(b, pt.View(), pt.Everything)
	p := pt.Pod(protocol.QoSLSR)
	p.Base = workload.Resources{MemoryLimit: unit.Some(8 * pt.GiB), Quota: unit.Some(200000), Period: unit.Some(100000)}
	b.ReportAllocs()
	for b.Loop() {
		pod.Decide(v, p, pod.Sums{})
	}
}

// A mid pod keeps the weight of its Kubernetes requests, and gets no limit that could bind its other containers.
func TestMidBesideKubernetesResources(t *testing.T) {
	t.Parallel()
	mid := int64(500)
	r := protocol.ExtendedResources{MidCPU: &mid}
	v, p := pt.View(), pt.Pod(protocol.QoSLS)
	p.Base = workload.Resources{Shares: unit.Some(2048)}
	p.Ask.Extended = spec{"app": {Requests: r, Limits: r}}
	pl, _ := pod.Decide(v, p, pod.Sums{})
	pt.Want(t, pl, want{"cpu.shares": "2560"}, true)

	pt.Cache(v, p, map[string]node.ContainerSpec{"app": {}, "db": {CPURequest: 2000, CPULimit: 3000, MemoryLimit: pt.GiB}})
	pl, _ = pod.Decide(v, p, pod.Sums{})
	pt.Want(t, pl, want{"cpu.shares": "2560", "cpu.quota": "350000"}, true)
}

// Values of features that do not write leave the pod's quota to those that do.
func TestPinnedOnlyWithTheCPUSet(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*node.View){
		"off":     func(v *node.View) { v.Modes[protocol.FeatureCPUSet] = node.Off },
		"ceded":   func(v *node.View) { v.Ceded = plan.KnobSet(plan.CPUSetCPUs) },
		"missing": func(v *node.View) { v.Kernel.Knobs[plan.CPUSetCPUs].OK = false },
	} {
		v, p := pt.View(), pt.Pod(protocol.QoSNone)
		p.Ask.ResourceStatus = &protocol.ResourceStatus{CPUSet: "0-1"}
		v.Dynamic.Normalization = 200
		change(v)
		pl, _ := pod.Decide(v, p, pod.Sums{})
		cl, _ := container.Decide(v, p, pt.Container(p))
		for _, got := range []plan.Plan{pl, cl} {
			if s := got.Get(plan.CPUQuota); s == nil || s.Value.Int() != 100000 {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
}

// file puts the strategy of a manifest into the view.
func file(t testing.TB, v *node.View, path string) *node.View {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return pt.YAML(t, v, string(data))
}
