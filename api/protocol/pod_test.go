// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol_test

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// whole is a pod that uses every key.
func whole() (labels, annotations map[string]string) {
	return map[string]string{
			protocol.LabelQoSClass:             "LS",
			protocol.LabelPriorityClass:        "koord-prod",
			protocol.LabelCoreSchedGroupID:     "group-1",
			protocol.LabelCoreSchedPolicy:      "exclusive",
			protocol.LabelGPUIsolationProvider: "HAMi-core",
			protocol.KeyOptOut:                 "llc",
		}, map[string]string{
			protocol.AnnotationExtendedResource: `{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"2Gi"},"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/mid-cpu":"1500m"}}}}`,
			protocol.AnnotationResourceStatus:   `{"cpuset":"0-3,8","numaNodeResources":[{"node":0,"resources":{"cpu":"4"}}]}`,
			protocol.AnnotationCPUBurst:         `{"policy":"auto","cpuBurstPercent":200,"cfsQuotaBurstPercent":150,"cfsQuotaBurstPeriodSeconds":-1}`,
			protocol.AnnotationCPUQOS:           `{"enable":true,"groupIdentity":-1,"schedIdle":1,"coreExpeller":false}`,
			protocol.AnnotationMemoryQOS:        `{"policy":"auto","minLimitPercent":50,"throttlingPercent":120,"pageCacheLimitSize":"1Gi"}`,
			protocol.AnnotationBlkIOQOS:         `{"blocks":[{"name":"/dev/vda","type":"device","ioCfg":{"readIOPS":100}}]}`,
			protocol.AnnotationNetworkQOS:       `{"ingressLimit":"50M","egressLimit":"20M"}`,
			protocol.AnnotationResctrl:          `{"llc":{"schemata":{"range":[0,30]},"schemataPerCache":[{"cacheID":1,"range":[10,20]}]},"mb":{"schemata":{"percent":20},"schemataPerCache":[{"cacheID":0,"percent":30}]}}`,
			protocol.AnnotationDeviceAllocated:  `{"gpu":[{"minor":1,"id":"GPU-8c25ea37","resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"16Gi"},"extension":{"gpuSharedResourceTemplate":"t1"}}],"rdma":[{"minor":0,"extension":{"vfs":[{"minor":1,"busID":"0000:1f:00.2"}]}}],"fpga":[]}`,
			protocol.AnnotationOOMScoreAdj:      "-500",
			protocol.AnnotationOOMScoreAdjSpec:  `{"main":-900,"side":1000}`,
			protocol.KeyOptOut:                  "cpu-burst, oom-score",
			protocol.AnnotationRequired:         "cpuset,devices",
		}
}

func TestParsePodWhole(t *testing.T) {
	t.Parallel()
	ask, problems := protocol.ParsePod(whole())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	main := ask.Extended["main"]
	score, _ := ask.OOMScoreAdjFor("main")
	other, _ := ask.OOMScoreAdjFor("other")
	for name, pair := range map[string][2]any{
		"qos":             {ask.QoS, protocol.QoSLS},
		"priority":        {ask.PriorityClass, protocol.PriorityProd},
		"group":           {ask.CoreSchedGroup, "group-1"},
		"policy":          {ask.CoreSchedPolicy, "exclusive"},
		"provider":        {ask.GPUIsolationProvider, "HAMi-core"},
		"has extended":    {ask.HasExtended, true},
		"batch-cpu limit": {*main.Limits.BatchCPU, int64(1000)},
		"batch-memory":    {*main.Limits.BatchMemory, int64(2 << 30)},
		"batch-cpu":       {*main.Requests.BatchCPU, int64(500)},
		"mid-cpu":         {*main.Requests.MidCPU, int64(2)},
		"cpuset":          {ask.ResourceStatus.CPUSet, "0-3,8"},
		"burst":           {*ask.CPUBurst.CPUBurstPercent, int64(200)},
		"identity":        {*ask.CPUQOS.GroupIdentity, int64(-1)},
		"memory policy":   {ask.MemoryQOS.Policy, "auto"},
		"throttling":      {*ask.MemoryQOS.ThrottlingPercent, int64(120)},
		"block":           {*ask.BlkIO[0].IOCfg.ReadIOPS, int64(100)},
		"llc":             {*ask.Resctrl.LLC, protocol.Range{Start: 0, End: 30}},
		"llc 1":           {ask.Resctrl.LLCPerCache[1], protocol.Range{Start: 10, End: 20}},
		"mb":              {*ask.Resctrl.MBPercent, int64(20)},
		"mb 0":            {ask.Resctrl.MBPerCache[0], int64(30)},
		"gpu memory":      {ask.Devices["gpu"][0].Resources[protocol.ResourceGPUMemory], int64(16 << 30)},
		"gpu id":          {ask.Devices["gpu"][0].ID, "GPU-8c25ea37"},
		"gpu template":    {ask.Devices["gpu"][0].GPUSharedResourceTemplate, "t1"},
		"vf":              {ask.Devices["rdma"][0].VFs[0].BusID, "0000:1f:00.2"},
		"container score": {score, -900},
		"other score":     {other, -500},
		"opt-out":         {ask.OptOut.String(), "cpu-burst,llc,oom-score"},
		"required":        {ask.Required.String(), "cpuset,devices"},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s = %v, want %v", name, pair[0], pair[1])
		}
	}
	if !reflect.DeepEqual(ask.ResourceStatus.NUMANodes, []int{0}) {
		t.Errorf("NUMA nodes %v", ask.ResourceStatus.NUMANodes)
	}
	if _, ok := ask.Devices["fpga"]; ok {
		t.Error("a type without a device is kept")
	}
}

// One bad key makes one problem, empties its own part and leaves all others as they were.
func TestParsePodOneBadKey(t *testing.T) {
	t.Parallel()
	labels, annotations := whole()
	for key := range annotations {
		if key == protocol.KeyOptOut || key == protocol.AnnotationRequired {
			continue
		}
		for _, bad := range []string{"{", "null", "", "[]", `{"x":`, strings.Repeat("x", protocol.MaxValueBytes+1)} {
			broken, without := maps.Clone(annotations), maps.Clone(annotations)
			broken[key] = bad
			delete(without, key)
			got, problems := protocol.ParsePod(labels, broken)
			want, _ := protocol.ParsePod(labels, without)
			if len(problems) != 1 || problems[0].Key != key {
				t.Errorf("%s=%.20q: problems %v", key, bad, problems)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s=%.20q changed other parts", key, bad)
			}
		}
	}
}

func TestParsePodRefuses(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, protocol.MaxDepth+1) + "1" + strings.Repeat("}", protocol.MaxDepth+1)
	long := `{"a":[` + strings.Repeat("1,", protocol.MaxEntries) + "1]}"
	for _, c := range []struct{ key, value, want string }{
		{protocol.LabelQoSClass, "LSX", `unknown class "LSX"`},
		{protocol.LabelPriorityClass, "prod", "unknown class"},
		{protocol.LabelCoreSchedPolicy, "all", "unknown policy"},
		{protocol.LabelCoreSchedGroupID, "a\nb", "printable"},
		{protocol.LabelGPUIsolationProvider, "x", "unknown provider"},
		{protocol.AnnotationCPUBurst, deep, "nested deeper"},
		{protocol.AnnotationCPUBurst, long, "more than 4096"},
		{protocol.AnnotationCPUBurst, `{"cpuBurstPercent":10001}`, "1..10000"},
		{protocol.AnnotationCPUBurst, `{"cpuBurstPercent":NaN}`, "not JSON"},
		{protocol.AnnotationCPUBurst, `{"cpuBurstPercent":"1"}`, "cpuBurstPercent"},
		{protocol.AnnotationCPUBurst, `{} {}`, "not JSON"},
		{protocol.AnnotationCPUQOS, `{"groupIdentity":3}`, "-1..2"},
		{protocol.AnnotationMemoryQOS, `{"policy":"x"}`, "policy"},
		{protocol.AnnotationMemoryQOS, `{"minLimitPercent":101}`, "0..100"},
		{protocol.AnnotationBlkIOQOS, `{"blocks":[{"name":"a","type":"disk"}]}`, "blocks[0].type"},
		{protocol.AnnotationResctrl, `{"llc":{"schemata":{"range":[30,30]}}}`, "start < end"},
		{protocol.AnnotationResctrl, `{"llc":{"schemata":{"range":[30]}}}`, "start < end"},
		{protocol.AnnotationResctrl, `{"mb":{"schemata":{"percent":0}}}`, "1..100"},
		{protocol.AnnotationResctrl, `{"mb":{"schemataPerCache":[{"percent":5}]}}`, "cacheID"},
		{protocol.AnnotationResctrl, `{}`, "neither"},
		{protocol.AnnotationResourceStatus, `{"cpuset":"3-1"}`, "CPU list"},
		{protocol.AnnotationResourceStatus, `{"cpuset":"0-8192"}`, "8191"},
		{protocol.AnnotationResourceStatus, `{"numaNodeResources":[{"node":1024}]}`, "NUMA node"},
		{protocol.AnnotationResourceStatus, `{"numaNodeResources":[{"node":0},{"node":0}]}`, "each once"},
		{protocol.AnnotationExtendedResource, `{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"-1"}}}}`, "negative"},
		{protocol.AnnotationExtendedResource, `{"containers":{"a":{"limits":{"kubernetes.io/batch-memory":"9Ei"}}}}`, "overflows"},
		{protocol.AnnotationExtendedResource, `{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"NaN"}}}}`, "bad quantity"},
		{protocol.AnnotationExtendedResource, `{"containers":{"":{}}}`, "name"},
		{protocol.AnnotationExtendedResource, `{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"1","koordinator.sh/batch-cpu":"2"}}}}`, "differ"},
		{protocol.AnnotationDeviceAllocated, `{"gpu":[{"minor":-1}]}`, "minor"},
		{protocol.AnnotationDeviceAllocated, `{"gpu":[{"minor":1,"id":"a,b"}]}`, "id"},
		{protocol.AnnotationDeviceAllocated, `{"rdma":[{"minor":1,"extension":{"vfs":[{"busID":"../../etc"}]}}]}`, "busID"},
		{protocol.AnnotationDeviceAllocated, `{"../x":[{"minor":1}]}`, "device type"},
		{protocol.AnnotationOOMScoreAdj, "-1001", "-1000..1000"},
		{protocol.AnnotationOOMScoreAdj, "1.5", "whole number"},
		{protocol.AnnotationOOMScoreAdjSpec, `{"a":1001}`, "-1000..1000"},
		{protocol.KeyOptOut, "cpu-brst", `unknown feature "cpu-brst"`},
		{protocol.AnnotationRequired, "cpuset,,llc", "unknown feature"},
	} {
		m := map[string]string{c.key: c.value}
		_, problems := protocol.ParsePod(m, nil)
		if len(problems) == 0 {
			_, problems = protocol.ParsePod(nil, m)
		}
		if len(problems) != 1 || !strings.Contains(problems[0].Reason, c.want) {
			t.Errorf("%s=%.60q: problems %v, want %q", c.key, c.value, problems, c.want)
		}
	}
}

// What is valid in a feature list counts, "true" is everything, and label and annotation add up.
func TestParsePodFeatures(t *testing.T) {
	t.Parallel()
	ask, problems := protocol.ParsePod(nil, map[string]string{protocol.KeyOptOut: "llc,nonsense"})
	if len(problems) != 1 || !ask.OptOut.Has(protocol.FeatureLLC) {
		t.Errorf("opt-out %v, problems %v", ask.OptOut, problems)
	}
	ask, problems = protocol.ParsePod(map[string]string{protocol.KeyOptOut: "true"}, nil)
	if len(problems) > 0 || ask.OptOut != protocol.AllFeatures {
		t.Errorf("opt-out %v, problems %v", ask.OptOut, problems)
	}
	ask, _ = protocol.ParsePod(nil, map[string]string{protocol.KeyOptOut: "false"})
	if !ask.OptOut.Empty() {
		t.Errorf("opt-out false is %v", ask.OptOut)
	}
}

// The order of problems does not depend on map order.
func TestParsePodDeterministic(t *testing.T) {
	t.Parallel()
	labels, annotations := whole()
	for key := range annotations {
		annotations[key] = "\x00bad"
	}
	for key := range labels {
		labels[key] = "\x7fbad"
	}
	annotations[protocol.AnnotationOOMScoreAdjSpec] = `{"c":2000,"b":2000,"a":2000}`
	_, first := protocol.ParsePod(labels, annotations)
	if len(first) != len(labels)+len(annotations) {
		t.Fatalf("%d problems of %d keys: %v", len(first), len(labels)+len(annotations), first)
	}
	for range 20 {
		if _, again := protocol.ParsePod(labels, annotations); !reflect.DeepEqual(first, again) {
			t.Fatalf("%v\n%v", first, again)
		}
	}
	for _, p := range first {
		checkReason(t, p)
	}
}

func checkReason(t *testing.T, p protocol.Problem) {
	t.Helper()
	if len(p.Reason) > 200 || p.Reason == "" || strings.ContainsFunc(p.Reason, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("reason of %s: %q", p.Key, p.Reason)
	}
}

// Most pods of a node carry no key of ours, and the plugin runs under the runtime's lock. Not parallel: it measures.
func TestParsePodWithoutKeysAllocatesNothing(t *testing.T) {
	labels := map[string]string{"app": "web", "pod-template-hash": "abc"}
	annotations := map[string]string{"kubernetes.io/config.source": "api"}
	if n := testing.AllocsPerRun(100, func() { protocol.ParsePod(labels, annotations) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	if n := testing.AllocsPerRun(100, func() { protocol.ParsePod(nil, nil) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkParsePod(b *testing.B) {
	labels, annotations := whole()
	b.ReportAllocs()
	for b.Loop() {
		protocol.ParsePod(labels, annotations)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for q := protocol.QoSNone; q <= protocol.QoSSystem; q++ {
		if got, ok := protocol.ParseQoS(q.String()); !ok || got != q {
			t.Errorf("QoS %d reads back as %d", q, got)
		}
	}
	for p := protocol.PriorityNone; p <= protocol.PriorityFree; p++ {
		if got, ok := protocol.ParsePriorityClass(p.String()); !ok || got != p {
			t.Errorf("priority %d reads back as %d", p, got)
		}
	}
	want := "[batch cpuset cpu-identity cpu-burst cpu-normalization memory-qos llc blkio oom-score core-sched devices network-qos]"
	if got := fmt.Sprint(protocol.Features()); got != want {
		t.Errorf("features %s, want %s", got, want)
	}
	for _, f := range protocol.Features() {
		if got, ok := protocol.ParseFeature(f.String()); !ok || got != f {
			t.Errorf("feature %v reads back as %v", f, got)
		}
	}
	for kube, want := range map[protocol.KubeQoS]protocol.QoS{
		protocol.KubeGuaranteed: protocol.QoSLSR, protocol.KubeBurstable: protocol.QoSLS,
		protocol.KubeBestEffort: protocol.QoSBE, protocol.KubeUnknown: protocol.QoSNone,
	} {
		if got := kube.DefaultQoS(); got != want {
			t.Errorf("%v defaults to %v, want %v", kube, got, want)
		}
	}
}

func TestCheckCPUList(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"0", "0-3,8", "8191", "5,5,1-2", "007", "0-8191", "0-4095,0-4095"} {
		if err := protocol.CheckCPUList(list); err != nil {
			t.Errorf("%q: %v", list, err)
		}
	}
	many := strings.TrimSuffix(strings.Repeat("1,", protocol.MaxEntries+1), ",")
	for _, list := range []string{"", ",", "0,", "3-1", "8192", "0-8192", "-1", "0- 3", "0-3\n", "a", "0-3:1/2", "1--2", many, "0-8191,0", "0-4095,1-4097"} {
		if err := protocol.CheckCPUList(list); err == nil {
			t.Errorf("%.20q accepted", list)
		}
	}
}
