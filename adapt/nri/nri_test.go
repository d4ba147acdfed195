// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package nri_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

var update = flag.Bool("update", false, "write the goldens")

const version = "v0.1.0"

func sandbox(labels, annotations map[string]string) *api.PodSandbox {
	return &api.PodSandbox{
		Id: "sb1", Name: "web", Uid: "uid-1", Namespace: "default", Labels: labels, Annotations: annotations, Pid: 41,
		Linux: &api.LinuxPodSandbox{
			CgroupParent: "/kubepods/burstable/poduid-1",
			PodResources: &api.LinuxResources{
				Cpu:    &api.LinuxCPU{Shares: api.UInt64(uint64(1024)), Quota: api.Int64(int64(200000)), Period: api.UInt64(uint64(100000))},
				Memory: &api.LinuxMemory{Limit: api.Int64(int64(1 << 30))},
			},
			PodOverhead: &api.LinuxResources{
				Cpu:    &api.LinuxCPU{Shares: api.UInt64(uint64(102)), Quota: api.Int64(int64(10000))},
				Memory: &api.LinuxMemory{Limit: api.Int64(int64(1 << 20))},
			},
		},
	}
}

func container() *api.Container {
	score := 100
	return &api.Container{
		Id: "c1", PodSandboxId: "sb1", Name: "app", Env: []string{"TOKEN=secret", "EMPTY"}, Pid: 42,
		Linux: &api.LinuxContainer{
			CgroupsPath: "/kubepods/burstable/poduid-1/c1",
			OomScoreAdj: api.Int(&score),
			Resources: &api.LinuxResources{
				Cpu:     &api.LinuxCPU{Shares: api.UInt64(uint64(1024)), Quota: api.Int64(int64(200000)), Period: api.UInt64(uint64(100000)), Cpus: "0-3"},
				Memory:  &api.LinuxMemory{Limit: api.Int64(int64(1 << 30))},
				Unified: map[string]string{"memory.oom.group": "1"},
			},
		},
	}
}

func view(v1 bool, runtimeVersion string) *node.View {
	v := &node.View{Generation: 7, Runtime: nri.Runtime("containerd", runtimeVersion, "")}
	v.Kernel.Cgroup = node.CgroupV2
	if v1 {
		v.Kernel.Cgroup = node.CgroupV1
	}
	return v
}

// full is a plan with every kind of knob.
func full(p *workload.Pod, c *workload.Container) plan.Plan {
	t := c.Target(p)
	set := func(k plan.Knob, key string, v plan.Value, f protocol.Feature) plan.Setting {
		return plan.Setting{Target: t, Knob: k, Key: key, Value: v, Owner: f, Reason: "test"}
	}
	return plan.Plan{
		set(plan.CPUShares, "", plan.Int(512), protocol.FeatureBatch),
		set(plan.CPUQuota, "", plan.Int(-1), protocol.FeatureCPUSet),
		set(plan.CPUSetCPUs, "", plan.Text("2-3"), protocol.FeatureCPUSet),
		set(plan.CPUSetMems, "", plan.Text("0"), protocol.FeatureCPUSet),
		set(plan.MemoryLimit, "", plan.Int(1<<29), protocol.FeatureBatch),
		set(plan.MemoryHigh, "", plan.Int(-1), protocol.FeatureMemory),
		set(plan.MemoryMin, "", plan.Int(1<<20), protocol.FeatureMemory),
		set(plan.MemoryOOMGroup, "", plan.Int(0), protocol.FeatureMemory),
		set(plan.CPUBurst, "", plan.Int(1000), protocol.FeatureBurst),
		set(plan.CPUBvt, "", plan.Int(-1), protocol.FeatureIdentity),
		set(plan.SchedPolicy, "", plan.Int(5), protocol.FeatureIdentity),
		set(plan.OOMScoreAdj, "", plan.Int(-200), protocol.FeatureOOMScore),
		set(plan.RDTClass, "", plan.Text("BE"), protocol.FeatureLLC),
		set(plan.RDTMonGroup, "", plan.Text("uid-1"), protocol.FeatureLLC),
		set(plan.IOReadBPS, "8:0", plan.Int(1<<20), protocol.FeatureBlkIO),
		set(plan.CoreSchedCookie, "", plan.Text("g"), protocol.FeatureCoreSched),
		set(plan.Env, "NVIDIA_VISIBLE_DEVICES", plan.Text("void"), protocol.FeatureDevices),
		set(plan.Device, "/dev/nvidia0", plan.Text("c 195:0 rwm"), protocol.FeatureDevices),
		set(plan.CDIDevice, "nvidia.com/gpu=GPU-1", plan.Text("nvidia.com/gpu=GPU-1"), protocol.FeatureDevices),
		set(plan.Mount, "/opt/lib.so", plan.Text("/opt/lib.so rbind,ro"), protocol.FeatureDevices),
		{Target: t, Knob: plan.MemoryLow, Value: plan.Int(5), Owner: protocol.FeatureMemory, Observe: true, Reason: "test"},
	}
}

func TestAdjustGoldens(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]*node.View{
		"v2-2.4": view(false, "v2.4.2"), "v1-2.4": view(true, "v2.4.2"),
		"v2-2.0": view(false, "2.0.5"), "v2-1.7": view(false, "1.7.30"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb := sandbox(nil, nil)
			p, c := nri.Pod(sb), nri.Container(sb, container())
			adj, rest := nri.Adjust(v, full(p, c), c, version)
			golden(t, name+".txt", render(t, adj)+"rest:\n"+rest.String())
		})
	}
}

// render prints a message without protojson's random spaces.
func render(t *testing.T, adj *api.ContainerAdjustment) string {
	t.Helper()
	raw, err := protojson.Marshal(adj)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out) + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// A container whose plan is empty, observed only or already in force is answered with nothing at all.
func TestAdjustNothing(t *testing.T) {
	t.Parallel()
	sb := sandbox(nil, nil)
	p, c := nri.Pod(sb), nri.Container(sb, container())
	t1 := c.Target(p)
	for name, pl := range map[string]plan.Plan{
		"empty":    nil,
		"observed": {{Target: t1, Knob: plan.CPUShares, Value: plan.Int(2), Observe: true}},
		"same":     {{Target: t1, Knob: plan.CPUShares, Value: plan.Int(1024)}, {Target: t1, Knob: plan.CPUSetCPUs, Value: plan.Text("0-3")}},
	} {
		if adj, _ := nri.Adjust(view(false, "2.4.2"), pl, c, version); adj != nil {
			t.Errorf("%s: adjustment %v, want none", name, adj)
		}
	}
}

// What the runtime makes of our adjustment reads back as the base it had before: create, then reconnect.
func TestBaseRoundTrip(t *testing.T) {
	t.Parallel()
	sb := sandbox(nil, nil)
	before := container()
	p, c := nri.Pod(sb), nri.Container(sb, before)
	v := view(false, "2.4.2")
	adj, _ := nri.Adjust(v, full(p, c), c, version)
	after := applied(before, adj)
	got := nri.Container(sb, after)
	if diff := cmp.Diff(c.Base, got.Base); diff != "" {
		t.Errorf("base (-before +after restart):\n%s", diff)
	}
	if got.Applied == nil || got.Applied.Generation != 7 {
		t.Errorf("applied = %+v", got.Applied)
	}

	// The kubelet changes the quota while nobody listens: that value is the new base.
	after.Linux.Resources.Cpu.Quota = api.Int64(int64(50000))
	if got := nri.Container(sb, after).Base.Quota; got != unit.Some(50000) {
		t.Errorf("quota of the kubelet = %v", got)
	}
	// A newer mark, as of the ledger, explains a value that the annotation does not know.
	mark := &protocol.Applied{Set: map[string]string{"cpu.quota": "50000 cpu-normalization"}, Base: map[string]string{"cpu.quota": "60000"}}
	if got := nri.Container(sb, after, mark).Base.Quota; got != unit.Some(60000) {
		t.Errorf("quota by the ledger = %v", got)
	}
}

// applied is what containerd makes of a creation with this adjustment.
func applied(c *api.Container, adj *api.ContainerAdjustment) *api.Container {
	out := container()
	r, a := out.Linux.Resources, adj.GetLinux().GetResources()
	r.Cpu.Shares, r.Cpu.Quota = a.Cpu.Shares, a.Cpu.Quota
	r.Cpu.Cpus, r.Cpu.Mems = a.Cpu.Cpus, a.Cpu.Mems
	r.Memory.Limit = a.Memory.Limit
	for k, v := range a.Unified {
		r.Unified[k] = v
	}
	r.RdtClass = a.RdtClass
	out.Linux.OomScoreAdj = adj.Linux.OomScoreAdj
	out.Annotations = adj.Annotations
	return out
}

// A group with cpu.idle must never meet a weight: shares 0 at creation and in every update.
func TestIdleKeepsSharesAway(t *testing.T) {
	t.Parallel()
	sb := sandbox(nil, nil)
	p, c := nri.Pod(sb), nri.Container(sb, container())
	v := view(false, "2.4.2")
	pl := plan.Plan{
		{Target: c.Target(p), Knob: plan.CPUShares, Value: plan.Int(2), Owner: protocol.FeatureBatch},
		{Target: c.Target(p), Knob: plan.CPUIdle, Value: plan.Int(1), Owner: protocol.FeatureIdentity},
	}
	adj, rest := nri.Adjust(v, pl, c, version)
	if s := adj.Linux.Resources.Cpu.Shares; s == nil || s.Value != 0 || adj.Linux.Resources.Unified["cpu.idle"] != "1" || len(rest) != 0 {
		t.Errorf("adjustment %v, rest %v", adj, rest)
	}
	u := nri.Update(v, pl, &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(500))}}, c)
	if s := u.GetLinux().GetResources().GetCpu().GetShares(); s == nil || s.Value != 0 {
		t.Errorf("update %v", u)
	}
	after := container()
	after.Linux.Resources.Cpu.Shares = api.UInt64(uint64(0))
	after.Linux.Resources.Unified["cpu.idle"] = "1"
	after.Annotations = adj.Annotations
	if got := nri.Container(sb, after).Base; got.Shares != unit.Some(1024) || got.Unified["cpu.idle"] != "" {
		t.Errorf("base after restart = %+v", got)
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	sb := sandbox(nil, nil)
	p, c := nri.Pod(sb), nri.Container(sb, container())
	v := view(false, "2.4.2")
	quota := func(n int64) plan.Plan {
		return plan.Plan{
			{Target: c.Target(p), Knob: plan.CPUQuota, Value: plan.Int(n)},
			{Target: c.Target(p), Knob: plan.OOMScoreAdj, Value: plan.Int(3)},
			{Target: p.Target(), Knob: plan.CPUShares, Value: plan.Int(3)},
		}
	}
	r := &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(int64(90000)), Shares: api.UInt64(uint64(7))}}
	if u := nri.Update(v, quota(90000), r, c); u != nil {
		t.Errorf("the request stands as it is, got %v", u)
	}
	u := nri.Update(v, quota(80000), r, c)
	if u == nil || u.ContainerId != "c1" || u.Linux.Resources.Cpu.Quota.Value != 80000 || u.Linux.Resources.Cpu.Shares != nil {
		t.Errorf("update = %v", u)
	}
}

func TestPod(t *testing.T) {
	t.Parallel()
	p := nri.Pod(sandbox(map[string]string{protocol.LabelQoSClass: "BE"}, nil))
	if p.KubeQoS != protocol.KubeBurstable || p.Class() != protocol.QoSBE || p.QoSCgroup != "/kubepods/burstable" || p.PID != 41 {
		t.Errorf("pod = %+v", p)
	}
	if p.Base.Shares != unit.Some(1126) || p.Base.Quota != unit.Some(210000) || p.Base.MemoryLimit != unit.Some(1<<30+1<<20) {
		t.Errorf("base = %+v", p.Base)
	}
	for id, want := range map[string]string{"c1": "/kubepods/burstable/poduid-1/c1", ".": "", "..": "", "a/b": "", "": ""} {
		if c := nri.Container(sandbox(nil, nil), &api.Container{Id: id}); c.Cgroup != want {
			t.Errorf("container %q is at %q, want %q", id, c.Cgroup, want)
		}
	}
	lost := nri.Pod(&api.PodSandbox{Id: "x", Linux: &api.LinuxPodSandbox{CgroupParent: "/../etc"}})
	if lost.Cgroup != "" || len(lost.Problems) == 0 {
		t.Errorf("pod outside of the root = %+v", lost)
	}
}

// Values of variables are not kept, in no form.
func TestNoSecrets(t *testing.T) {
	t.Parallel()
	c := nri.Container(sandbox(nil, nil), container())
	if diff := cmp.Diff([]string{"TOKEN", "EMPTY"}, c.EnvNames); diff != "" {
		t.Error(diff)
	}
}

func TestRuntime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		runtime, version, told         string
		nri                            string
		ok                             bool
		unified, cdi, sched, updatePod bool
	}{
		"1.7.26":            {"containerd", "1.7.26", "", "", false, false, false, false, false},
		"1.7.27":            {"containerd", "v1.7.27", "", "0.8", true, true, false, false, false},
		"1.7.29":            {"containerd", "v1.7.29", "", "0.8", true, true, false, false, false},
		"1.7.30 distro":     {"containerd", "1.7.30-0ubuntu1", "", "0.8", true, true, false, false, false},
		"2.0.5":             {"containerd", "v2.0.5", "", "0.8", true, true, false, false, false},
		"2.1":               {"containerd", "2.1.0", "", "0.8", true, true, true, false, false},
		"2.2.0":             {"containerd", "2.2.0", "", "0.10", true, true, true, false, true},
		"2.2.1":             {"containerd", "2.2.1", "", "0.11", true, true, true, true, true},
		"2.4.2":             {"containerd", "v2.4.2", "v0.12.3", "0.12", true, true, true, true, true},
		"2.9 devel":         {"containerd", "2.9.0+unknown", "0.0.0-unknown", "0.12", true, true, true, true, true},
		"patched with 0.10": {"containerd", "2.4.2", "v0.10.0", "0.10", true, true, true, false, true},
		"cri-o 1.31":        {"cri-o", "1.31.0", "", "", false, false, false, false, false},
		"cri-o 1.34":        {"cri-o", "1.34.1", "", "0.10", true, true, true, false, true},
		"cri-o 1.36":        {"cri-o", "1.36.0", "", "0.11", true, true, true, true, true},
		"unknown":           {"youki-d", "1.0", "", "", false, false, false, false, false},
		"unknown with NRI":  {"youki-d", "1.0", "v0.11.2", "0.11", true, true, false, true, true},
		"garbage":           {"containerd", "x.y", "", "", false, false, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := nri.Runtime(c.runtime, c.version, c.told)
			why, ok := r.Supported()
			f := r.Fields
			if drops := strings.HasPrefix(name, "1.7.27") || name == "1.7.29" || name == "2.0.5"; r.NoCDI != drops {
				t.Errorf("drops CDI devices whatever is configured: %v", r.NoCDI)
			}
			if ok != c.ok || r.NRI != c.nri || f.Unified != c.unified || f.CDI != c.cdi || f.Scheduler != c.sched || f.UpdatePod != c.updatePod {
				t.Errorf("got %+v, %q, %v", r, why, ok)
			}
			// CRI-O takes no refusal at the start (TestCRIOLifecycle): whoever asks what limits it has to be told.
			if told := strings.Contains(strings.Join(r.Problems, "\n"), "fail-closed"); told != (ok && c.runtime == "cri-o") {
				t.Errorf("problems %q", r.Problems)
			}
			events := nri.Events(&r)
			if old := !c.updatePod; old && int32(events)&^0x7ff != 0 {
				t.Errorf("events %#x: an NRI before 0.10 refuses bits above 0x400", int32(events))
			}
		})
	}
}

// The hot path: translating both ways may not allocate more than this.
func TestAllocations(t *testing.T) {
	sb, ctr := sandbox(nil, nil), container()
	p, c := nri.Pod(sb), nri.Container(sb, ctr)
	v, pl := view(false, "2.4.2"), full(p, c)[:9]
	if n := testing.AllocsPerRun(200, func() { nri.Container(sb, ctr) }); n > 12 {
		t.Errorf("Container allocates %v times", n)
	}
	if n := testing.AllocsPerRun(200, func() { nri.Adjust(v, pl, c, version) }); n > 40 {
		t.Errorf("Adjust allocates %v times", n)
	}
}

func BenchmarkAdjust(b *testing.B) {
	sb := sandbox(nil, nil)
	p, c := nri.Pod(sb), nri.Container(sb, container())
	v, pl := view(false, "2.4.2"), full(p, c)[:9]
	b.ReportAllocs()
	for b.Loop() {
		nri.Adjust(v, pl, c, version)
	}
}

func FuzzContainer(f *testing.F) {
	f.Add("c1", "/kubepods/burstable/poduid-1/c1", `{"gen":1,"by":"x","set":{"cpu.shares":"5 batch"},"base":{"cpu.shares":"x"}}`, "0-3")
	f.Add("..", "a.slice:b:c", "", "")
	f.Add("../..", "a.slice:b:c", strings.Repeat("{", 100), "0-4294967295")
	f.Fuzz(func(t *testing.T, id, path, mark, cpus string) {
		ctr := container()
		ctr.Id, ctr.Linux.CgroupsPath, ctr.Linux.Resources.Cpu.Cpus = id, path, cpus
		ctr.Annotations = map[string]string{protocol.AnnotationApplied: mark}
		sb := sandbox(nil, map[string]string{protocol.AnnotationResourceStatus: mark})
		p, c := nri.Pod(sb), nri.Container(sb, ctr)
		if slices.Contains(strings.Split(c.Cgroup, "/"), "..") {
			t.Errorf("cgroup %q leaves its root", c.Cgroup)
		}
		nri.Adjust(view(false, "2.4.2"), full(p, c), c, version)
	})
}
