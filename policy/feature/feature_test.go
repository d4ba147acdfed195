// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package feature_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/feature"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// Beside a runtime that is not worked with nothing works, whatever the kernel has.
func TestStatesRefusedRuntime(t *testing.T) {
	t.Parallel()
	v := pt.View()
	v.Runtime = node.Runtime{Name: "containerd", Version: "1.7.24", Problems: []string{"unsupported: containerd 1.7.24 is older than 1.7.27"}}
	v.Modes[protocol.FeatureBurst] = node.Off
	for _, s := range feature.States(v) {
		want := node.FeatureState{Feature: s.Feature, State: feature.Unsupported, Detail: "the runtime is unsupported: containerd 1.7.24 is older than 1.7.27"}
		if s.Feature == protocol.FeatureBurst.String() {
			want.State, want.Detail = feature.Off, "switched off in the configuration"
		}
		if s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	without := func(k plan.Knob, why string) func(*node.View) {
		return func(v *node.View) { v.Kernel.Knobs[k] = node.Support{Why: why} }
	}
	gpus := func(v *node.View) {
		v.Pods = map[string]node.PodSpec{}
		v.Kernel.Devices = []node.DeviceNode{{Type: "gpu"}}
	}
	for name, tc := range map[string]struct {
		feature protocol.Feature
		change  func(*node.View)
		state   string
		detail  string
	}{
		"batch":                      {protocol.FeatureBatch, nil, feature.Active, "no pod cache"},
		"batch without shares":       {protocol.FeatureBatch, without(plan.CPUShares, "no cpu controller"), feature.Unsupported, "no cpu.shares: no cpu controller"},
		"cpuset":                     {protocol.FeatureCPUSet, nil, feature.Active, "no suppression set"},
		"cpuset and static manager":  {protocol.FeatureCPUSet, func(v *node.View) { v.Kernel.KubeletStaticCPU = true }, feature.Degraded, "static CPU manager"},
		"cpuset ceded":               {protocol.FeatureCPUSet, func(v *node.View) { v.Ceded = plan.KnobSet(plan.CPUSetCPUs) }, feature.Unsupported, "ceded"},
		"identity on mainline":       {protocol.FeatureIdentity, nil, feature.Degraded, "SCHED_IDLE"},
		"identity on 6.12":           {protocol.FeatureIdentity, func(v *node.View) { v.Kernel.Minor = 12 }, feature.Degraded, "since Linux 6.12 guides wake-up placement only"},
		"identity on v1":             {protocol.FeatureIdentity, func(v *node.View) { v.Kernel.Cgroup = node.CgroupV1 }, feature.Degraded, "weighs each idle pod 3 and a pod without a CPU request 2: those of other classes than BE get cpu.shares 1024"},
		"identity on v1, no shares":  {protocol.FeatureIdentity, func(v *node.View) { v.Kernel.Cgroup, v.Ceded = node.CgroupV1, plan.KnobSet(plan.CPUShares) }, feature.Degraded, "one BE pod has 0.6 of what it shares with a pod of another class, eight have 0.92"},
		"identity on v2, no shares":  {protocol.FeatureIdentity, func(v *node.View) { v.Ceded = plan.KnobSet(plan.CPUShares) }, feature.Degraded, "a CPU request 10, and cpu.shares is ceded to another plugin: where all compute, one BE pod has 0.23 of what it shares with a pod of another class, eight have 0.71"},
		"identity on vendor kernels": {protocol.FeatureIdentity, func(v *node.View) { pt.Vendor(v) }, feature.Active, "cpu.bvt_warp_ns"},
		"identity on 4.19":           {protocol.FeatureIdentity, func(v *node.View) { v.Kernel.Major, v.Kernel.Knobs[plan.CPUIdle].OK = 4, false }, feature.Unsupported, "Linux 5.15"},
		"burst":                      {protocol.FeatureBurst, nil, feature.Active, "refused by the kernel while koord-nri is away"},
		"burst without event":        {protocol.FeatureBurst, func(v *node.View) { v.Runtime.Fields.UpdatePod = false }, feature.Degraded, "containerd 2.4.0 (NRI 0.12) has no UpdatePodSandbox event"},
		"burst on 5.10":              {protocol.FeatureBurst, without(plan.CPUBurst, "cpu.max.burst needs Linux 5.14"), feature.Unsupported, "5.14"},
		"normalisation":              {protocol.FeatureNormalization, func(v *node.View) { v.Dynamic.Normalization = 125 }, feature.Active, "ratio 1.25"},
		"memory on mainline":         {protocol.FeatureMemory, nil, feature.Degraded, "memory.wmark_ratio"},
		"memory on vendor kernels":   {protocol.FeatureMemory, func(v *node.View) { pt.Vendor(v) }, feature.Active, ""},
		"memory under systemd":       {protocol.FeatureMemory, func(v *node.View) { pt.Vendor(v).Kernel.Systemd = true }, feature.Active, "writes memory.oom.group"},
		"memory with kubelet's":      {protocol.FeatureMemory, func(v *node.View) { pt.Vendor(v).Kernel.KubeletMemoryQoS = true }, feature.Degraded, "kubelet's MemoryQoS"},
		"memory on v1": {protocol.FeatureMemory, func(v *node.View) {
			v.Kernel.Cgroup = node.CgroupV1
			for _, k := range []plan.Knob{plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh} {
				v.Kernel.Knobs[k].OK = false
			}
		}, feature.Unsupported, "they need cgroup v2"},
		"llc":                  {protocol.FeatureLLC, nil, feature.Active, ""},
		"llc not mounted":      {protocol.FeatureLLC, func(v *node.View) { v.Kernel.RDT = node.RDT{Why: "no resctrl in /proc/filesystems"} }, feature.Unsupported, "/proc/filesystems"},
		"llc without MB":       {protocol.FeatureLLC, func(v *node.View) { v.Kernel.RDT.MB = false }, feature.Degraded, "no memory bandwidth"},
		"blkio":                {protocol.FeatureBlkIO, nil, feature.Active, "type volumegroup or podvolume are not resolved"},
		"blkio without iocost": {protocol.FeatureBlkIO, func(v *node.View) { v.Kernel.Knobs[plan.IOWeight].Degraded = "no device has iocost on" }, feature.Degraded, "io.weight: no device has iocost on"},
		"blkio on v1":          {protocol.FeatureBlkIO, func(v *node.View) { v.Kernel.Cgroup = node.CgroupV1 }, feature.Degraded, "does not look at ancestors"},
		"blkio with fields that nobody reads": {protocol.FeatureBlkIO, func(v *node.View) {
			pt.YAML(t, v, "{resourceQOSStrategy: {beClass: {blkioQOS: {enable: true, blocks: [{name: sda, type: device, ioCfg: {readLatencyPercent: 95, enableUserModel: true, modelReadBPS: 7}}]}}}}")
		}, feature.Degraded, `blkioQOS of BE, "sda": readLatencyPercent, enableUserModel, modelReadBPS set nothing`},
		"blkio with weights": {protocol.FeatureBlkIO, func(v *node.View) {
			weights(t, v)
			v.Kernel.WeightedBy = map[string]string{"8:0": node.ByIOCost, "259:0": node.ByIOCost}
		}, feature.Active, ""},
		"blkio with a weight that nobody reads": {protocol.FeatureBlkIO, func(v *node.View) {
			weights(t, v)
			v.Kernel.WeightedBy = map[string]string{"8:0": node.ByIOCost}
		}, feature.Degraded, `blkioQOS of BE, "nvme0n1": io.weight is written, but the disk has neither iocost nor BFQ`},
		"blkio with a weight under BFQ": {protocol.FeatureBlkIO, func(v *node.View) {
			weights(t, v)
			v.Kernel.WeightedBy = map[string]string{"8:0": node.ByBFQ, "259:0": node.ByIOCost}
		}, feature.Degraded, `blkioQOS of BE, "sda": io.weight is written, but the disk is under BFQ, which reads io.bfq.weight`},
		"cost control":           {protocol.FeatureBlkIO, func(v *node.View) { cost(t, v).Dynamic.Known = true }, feature.Active, ""},
		"cost control, no agent": {protocol.FeatureBlkIO, func(v *node.View) { cost(t, v) }, feature.Degraded, "by the node agent, which tells nothing"},
		"cost control, no file":  {protocol.FeatureBlkIO, func(v *node.View) { without(plan.IOCostQoS, "built without it")(cost(t, v)) }, feature.Degraded, "no io.cost.qos: built without it"},
		"oom score":              {protocol.FeatureOOMScore, func(v *node.View) { v.Runtime.Fields.OOMScoreAdj = false }, feature.Active, "written at StartContainer"},
		"core scheduling":        {protocol.FeatureCoreSched, nil, feature.Active, ""},
		"core scheduling off":    {protocol.FeatureCoreSched, func(v *node.View) { v.Limits.CoreSched = false }, feature.Off, "limits"},
		"no threads": {protocol.FeatureCoreSched, func(v *node.View) {
			v.Topology = pt.Topology(1, 1)
		}, feature.Degraded, "more than one thread"},
		"devices":            {protocol.FeatureDevices, gpus, feature.Active, ""},
		"devices none":       {protocol.FeatureDevices, nil, feature.Unsupported, "no GPU or RDMA"},
		"devices off":        {protocol.FeatureDevices, func(v *node.View) { v.Limits.Devices = false }, feature.Off, "limits"},
		"devices, no CDI":    {protocol.FeatureDevices, func(v *node.View) { gpus(v); v.Runtime.Fields.CDI = false }, feature.Degraded, "NVIDIA_VISIBLE_DEVICES"},
		"devices, no cache":  {protocol.FeatureDevices, func(v *node.View) { gpus(v); v.Pods = nil }, feature.Degraded, "no pod cache"},
		"burst by CRI on v1": {protocol.FeatureBurst, func(v *node.View) { byCRI(v).Kernel.Cgroup = node.CgroupV1 }, feature.Degraded, "after start: a CRI request to containerd 2.4.0 cannot carry cpu.burst"},
		"burst by CRI early": {protocol.FeatureBurst, func(v *node.View) { byCRI(v).Kernel.Cgroup = node.CgroupV1 }, feature.Degraded, "written while the runtime prepares the container"},
		"burst by CRI on v2": {protocol.FeatureBurst, func(v *node.View) { byCRI(v) }, feature.Active, "while koord-runtime-proxy is away"},
		"burst by old CRI":   {protocol.FeatureBurst, func(v *node.View) { byCRI(v).Runtime.Fields.UpdatePod = false }, feature.Degraded, "no UpdatePodSandboxResources call"},
		"identity by CRI":    {protocol.FeatureIdentity, func(v *node.View) { byCRI(v) }, feature.Degraded, "cannot carry sched.policy"},
		"bvt by CRI":         {protocol.FeatureIdentity, func(v *node.View) { pt.Vendor(byCRI(v)) }, feature.Degraded, "cannot carry cpu.bvt"},
		"llc by CRI":         {protocol.FeatureLLC, func(v *node.View) { byCRI(v) }, feature.Degraded, "cannot carry rdt.class"},
		"cookies by CRI":     {protocol.FeatureCoreSched, func(v *node.View) { byCRI(v) }, feature.Degraded, "after start"},
		"oom score by CRI":   {protocol.FeatureOOMScore, func(v *node.View) { byCRI(v) }, feature.Active, ""},
		"oom score by old CRI": {protocol.FeatureOOMScore, func(v *node.View) {
			byCRI(v).Runtime.Fields.OOMScoreAdj = false
		}, feature.Degraded, "cannot carry oom_score_adj"},
		"blkio by CRI on v1":   {protocol.FeatureBlkIO, func(v *node.View) { byCRI(v).Kernel.Cgroup = node.CgroupV1 }, feature.Degraded, "cannot carry io.read_bps"},
		"blkio by CRI":         {protocol.FeatureBlkIO, func(v *node.View) { byCRI(v) }, feature.Active, ""},
		"memory by CRI":        {protocol.FeatureMemory, func(v *node.View) { pt.Vendor(byCRI(v)) }, feature.Degraded, "cannot carry memory.wmark"},
		"batch by CRI":         {protocol.FeatureBatch, func(v *node.View) { byCRI(v) }, feature.Active, ""},
		"network, nobody asks": {protocol.FeatureNetwork, nil, feature.Active, "no class asks for it"},
		"network, no agent":    {protocol.FeatureNetwork, func(v *node.View) { shares(v) }, feature.Unsupported, "by the node agent, which tells nothing"},
		"network":              {protocol.FeatureNetwork, func(v *node.View) { shares(v).Known = true }, feature.Active, "by the node agent"},
		"network, no link": {protocol.FeatureNetwork, func(v *node.View) {
			*shares(v) = node.Dynamic{Known: true, Network: node.Network{Missing: "no default route"}}
		}, feature.Unsupported, "no default route"},
		"network, one way": {protocol.FeatureNetwork, func(v *node.View) {
			*shares(v) = node.Dynamic{Known: true, Network: node.Network{Limited: "no ingress: no ifb"}}
		}, feature.Degraded, "no ifb"},
		"network ceded": {protocol.FeatureNetwork, func(v *node.View) { shares(v); v.Ceded = plan.KnobSet(plan.NetShape) }, feature.Unsupported, "net.shape is ceded"},
		"observe":       {protocol.FeatureMemory, func(v *node.View) { v.Modes[protocol.FeatureMemory] = node.Observe }, feature.Observe, "when active: degraded"},
		"off":           {protocol.FeatureMemory, func(v *node.View) { v.Modes[protocol.FeatureMemory] = node.Off }, feature.Off, "configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := pt.View()
			if tc.change != nil {
				tc.change(v)
			}
			states := feature.States(v)
			if len(states) != int(protocol.NumFeatures) {
				t.Fatalf("%d states", len(states))
			}
			got := states[tc.feature]
			if got.Feature != tc.feature.String() || got.State != tc.state || !strings.Contains(got.Detail, tc.detail) {
				t.Errorf("got %+v, want %s %q", got, tc.state, tc.detail)
			}
			if got.State != feature.Active && got.Detail == "" {
				t.Error("no reason is given")
			}
		})
	}
}

// weights has class BE weigh two disks.
func weights(t *testing.T, v *node.View) {
	pt.YAML(t, v, "{resourceQOSStrategy: {beClass: {blkioQOS: {enable: true, blocks: [{name: sda, type: device, ioCfg: {ioWeightPercent: 50}}, {name: nvme0n1, type: device, ioCfg: {ioWeightPercent: 50}}]}}}}")
}

// cost has a disk's cost control set.
func cost(t *testing.T, v *node.View) *node.View {
	return pt.YAML(t, v, "{resourceQOSStrategy: {cgroupRoot: {blkioQOS: {enable: true, blocks: [{name: sda, type: device, ioCfg: {readLatencyPercent: 95}}]}}}}")
}

// shares enables shares of the network for BE.
func shares(v *node.View) *node.Dynamic {
	v.Strategy.ResourceQOSStrategy.BEClass.NetworkQOS.Enable = new(true)
	return &v.Dynamic
}

// byCRI takes NRI away.
func byCRI(v *node.View) *node.View {
	v.Runtime.NRI = ""
	return v
}

// A bare node: nothing probed, nothing configured. Every line still says why.
func TestStatesOfNothing(t *testing.T) {
	t.Parallel()
	for _, s := range feature.States(&node.View{}) {
		if s.State != feature.Active && s.Detail == "" {
			t.Errorf("%+v gives no reason", s)
		}
	}
}
