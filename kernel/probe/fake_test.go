// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package probe

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// v2Files is a systemd node whose kubepods slice has every mainline file.
func v2Files() map[string]string {
	files := map[string]string{
		"cg/cgroup.controllers":          "cpuset cpu io memory pids",
		"cg/cgroup.subtree_control":      "cpuset cpu io memory pids",
		"proc/meminfo":                   "MemTotal: 1048576 kB",
		"proc/1/comm":                    "systemd",
		"proc/self/mountinfo":            "36 25 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,memory_recursiveprot",
		"sys/devices/system/cpu/online":  "0-1",
		"sys/block/sda/dev":              "8:0",
		"dev/null":                       "",
		"kubelet/cpu_manager_state":      `{"policyName":"static","defaultCpuSet":"0-1","checksum":1}`,
		"kubelet/memory_manager_state":   `{"policyName":"None","machineState":{},"checksum":2}`,
		"cg/kubepods.slice/cgroup.procs": "",
	}
	for _, f := range []string{"cpu.weight", "cpu.max", "cpu.max.burst", "cpu.idle", "cpuset.cpus", "cpuset.mems", "memory.max", "memory.low", "memory.high", "memory.oom.group", "io.max", "io.weight"} {
		files["cg/kubepods.slice/"+f] = "0"
	}
	files["cg/kubepods.slice/cgroup.controllers"] = "cpuset cpu io memory pids"
	files["cg/kubepods.slice/memory.min"] = "4096"
	return files
}

func fakeRoots(t *testing.T, files map[string]string) (root.Roots, Options) {
	t.Helper()
	dir := kerneltest.Lay(t, files, "\n")
	return root.Roots{Cgroup: dir + "/cg", Proc: dir + "/proc", Sys: dir + "/sys", Resctrl: dir + "/resctrl", Dev: dir + "/dev"},
		Options{KubeletCPUState: dir + "/kubelet/cpu_manager_state", KubeletMemoryState: dir + "/kubelet/memory_manager_state", CDIDirs: []string{dir + "/cdi"}}
}

func probeFake(t *testing.T, files map[string]string, change func(*Options)) node.Kernel {
	t.Helper()
	roots, o := fakeRoots(t, files)
	if change != nil {
		change(&o)
	}
	k, _, _, err := Probe(t.Context(), roots, o)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(roots.Cgroup + "/" + samplePrefix + "*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return k
}

// A tree that is no kernel is read at the kubelet's cgroup and never written to.
func TestProbeFakeV2(t *testing.T) {
	t.Parallel()
	k := probeFake(t, v2Files(), nil)
	if k.Cgroup != node.CgroupV2 || !k.Systemd || !k.RecursiveProt || !k.KubeletStaticCPU || k.KubeletStaticMemory || !k.KubeletMemoryQoS {
		t.Errorf("got %+v", k)
	}
	for _, knob := range []plan.Knob{plan.CPUShares, plan.CPUBurst, plan.CPUIdle, plan.MemoryMin, plan.IOReadBPS, plan.IOWeight} {
		if !k.Has(knob) {
			t.Errorf("%s: %s", knob, k.Knobs[knob].Why)
		}
	}
	for knob, why := range map[plan.Knob]string{
		plan.CPUBvt:      "only Anolis",
		plan.IOLatency:   "no io.latency",
		plan.RDTClass:    "no resctrl filesystem",
		plan.RDTSchemata: "no resctrl filesystem",
	} {
		if s := k.Knobs[knob]; s.OK || !strings.Contains(s.Why, why) {
			t.Errorf("%s: %+v", knob, s)
		}
	}
	if d := k.Knobs[plan.IOWeight].Degraded; !strings.Contains(d, "iocost") {
		t.Errorf("io.weight without iocost: %q", d)
	}
}

func TestProbeSwitches(t *testing.T) {
	t.Parallel()
	files := v2Files()
	files["sys/block/sda/queue/scheduler"] = "none [bfq]"
	if k := probeFake(t, files, nil); !strings.Contains(k.Knobs[plan.IOWeight].Degraded, "sda is under BFQ") || k.WeightedBy["8:0"] != node.ByBFQ {
		t.Errorf("io.weight under BFQ: %q, %v", k.Knobs[plan.IOWeight].Degraded, k.WeightedBy)
	}
	files["cg/io.cost.qos"] = "8:0 enable=1 ctrl=auto rpct=0.00"
	files["cg/kubepods.slice/cpu.bvt_warp_ns"] = "0"
	files["proc/sys/kernel/sched_group_identity_enabled"] = "0"
	k := probeFake(t, files, nil)
	if d := k.Knobs[plan.IOWeight].Degraded; d != "" || k.WeightedBy["8:0"] != node.ByIOCost {
		t.Errorf("io.weight with iocost: %q, %v", d, k.WeightedBy)
	}
	if k.Has(plan.IOCostModel) || !k.Has(plan.IOCostQoS) || !strings.Contains(k.Knobs[plan.IOCostModel].Why, "no io.cost.model: ") {
		t.Errorf("%+v, %+v", k.Knobs[plan.IOCostQoS], k.Knobs[plan.IOCostModel])
	}
	if s := k.Knobs[plan.CPUBvt]; s.OK || !strings.Contains(s.Why, "sched_group_identity_enabled") {
		t.Errorf("bvt switched off: %+v", s)
	}
	files["proc/sys/kernel/sched_group_identity_enabled"] = "1"
	if k := probeFake(t, files, nil); !k.Has(plan.CPUBvt) {
		t.Errorf("bvt switched on: %+v", k.Knobs[plan.CPUBvt])
	}
}

func TestProbeV1WithVendorFiles(t *testing.T) {
	t.Parallel()
	files := map[string]string{"proc/meminfo": "MemTotal: 4 kB", "proc/self/mountinfo": "", "proc/1/comm": "init", "sys/devices/system/cpu/online": "0", "dev/null": ""}
	for _, f := range []string{"cpu/kubepods/cpu.shares", "cpu/kubepods/cpu.bvt_warp_ns", "memory/kubepods/memory.limit_in_bytes", "memory/kubepods/memory.wmark_ratio"} {
		files["cg/"+f] = "0"
	}
	k := probeFake(t, files, nil)
	if k.Cgroup != node.CgroupV1 || k.Systemd || !k.Has(plan.CPUShares) || !k.Has(plan.CPUBvt) || !k.Has(plan.MemoryWmarkRatio) {
		t.Errorf("got %+v", k)
	}
	if s := k.Knobs[plan.IOReadBPS]; s.OK || !strings.Contains(s.Why, "blkio controller is not mounted") {
		t.Errorf("without blkio: %+v", s)
	}
}

func TestProbeWithoutAnyCgroupIsInconclusive(t *testing.T) {
	t.Parallel()
	files := v2Files()
	for name := range files {
		if strings.HasPrefix(name, "cg/kubepods.slice/") {
			delete(files, name)
		}
	}
	roots, o := fakeRoots(t, files)
	k, topology, _, err := Probe(t.Context(), roots, o)
	if !errors.Is(err, ErrInconclusive) || topology == nil {
		t.Errorf("got %v, topology %v", err, topology)
	}
	if s := k.Knobs[plan.CPUShares]; s.OK || !strings.Contains(s.Why, "not probed") {
		t.Errorf("cpu.shares: %+v", s)
	}
}

func TestProbeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	roots, o := fakeRoots(t, v2Files())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := Probe(ctx, roots, o); !errors.Is(err, ErrInconclusive) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDriver(t *testing.T) {
	t.Parallel()
	plain := v2Files()
	for name, v := range v2Files() {
		if rest, ok := strings.CutPrefix(name, "cg/kubepods.slice/"); ok {
			delete(plain, name)
			plain["cg/kubepods/"+rest] = v
		}
	}
	if k := probeFake(t, plain, nil); k.Systemd {
		t.Error("kubepods is not systemd's")
	}
	both := v2Files()
	both["cg/kubepods/cgroup.procs"] = ""
	if k := probeFake(t, both, nil); !k.Systemd {
		t.Error("with both, PID 1 decides")
	}
	both["proc/1/comm"] = "init"
	if k := probeFake(t, both, nil); k.Systemd {
		t.Error("with both and another PID 1")
	}
}

func TestKubeletMemoryQoSHint(t *testing.T) {
	t.Parallel()
	asked := 0
	for name, c := range map[string]struct {
		change func(*Options)
		want   bool
	}{
		"hint":      {func(*Options) {}, true},
		"meanwhile": {func(o *Options) { o.OwnMemoryMin = func(string) bool { asked++; return asked > 1 } }, false}, // ours before it was read
		"our own":   {func(o *Options) { o.OwnMemoryMin = func(top string) bool { return top == "/kubepods.slice" } }, false},
		"another's": {func(o *Options) { o.OwnMemoryMin = func(top string) bool { return top != "/kubepods.slice" } }, true},
		"told no":   {func(o *Options) { o.KubeletMemoryQoS = No }, false},
		"told yes":  {func(o *Options) { o.KubeletMemoryQoS, o.OwnMemoryMin = Yes, func(string) bool { return true } }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if k := probeFake(t, v2Files(), c.change); k.KubeletMemoryQoS != c.want {
				t.Errorf("got %v", k.KubeletMemoryQoS)
			}
		})
	}
}

// The driver and MemoryQoS are looked for below the kubelet's own root, and nowhere else.
func TestKubepodsRoot(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for name, v := range v2Files() {
		if rest, ok := strings.CutPrefix(name, "cg/kubepods.slice/"); ok {
			files["cg/lab/kubepods/"+rest] = v
		}
		files[name] = v
	}
	files["cg/kubepods.slice/memory.min"] = "0"
	if k := probeFake(t, files, nil); !k.Systemd || k.KubeletMemoryQoS {
		t.Errorf("at the root: systemd %v, memory %v", k.Systemd, k.KubeletMemoryQoS)
	}
	if k := probeFake(t, files, func(o *Options) { o.KubepodsRoot = "/lab" }); k.Systemd || !k.KubeletMemoryQoS {
		t.Errorf("below the root: systemd %v, memory %v", k.Systemd, k.KubeletMemoryQoS)
	}
}
