// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// ofPod is set at the level of a pod.
func ofPod(k plan.Knob, v int64) plan.Setting {
	s := set(pod, k, plan.Int(v))
	s.Target.Level = plan.LevelPod
	return s
}

// TestOrder: the writes of whole plans, in order, with a kernel that refuses the wrong one.
func TestOrder(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kernel string
		before []plan.Setting
		plan   []plan.Setting
		want   []string
	}{
		"protections rise from outside": {"6.12", nil,
			[]plan.Setting{set(ctr, plan.MemoryMin, plan.Int(4096)), set(all, plan.MemoryMin, plan.Int(8192)), set(pod, plan.MemoryMin, plan.Int(4096)), set(qos, plan.MemoryMin, plan.Int(4096))},
			[]string{all + "/memory.min=8192", qos + "/memory.min=4096", pod + "/memory.min=4096", ctr + "/memory.min=4096"}},
		"protections fall from inside": {"6.12",
			[]plan.Setting{set(all, plan.MemoryLow, plan.Int(8192)), set(pod, plan.MemoryLow, plan.Int(8192)), set(ctr, plan.MemoryLow, plan.Int(8192))},
			[]plan.Setting{set(all, plan.MemoryLow, plan.Int(0)), set(pod, plan.MemoryLow, plan.Int(0)), set(ctr, plan.MemoryLow, plan.Int(0))},
			[]string{ctr + "/memory.low=0", pod + "/memory.low=0", all + "/memory.low=0"}},
		"v1 quota grows from outside": {"v1",
			[]plan.Setting{set(pod, plan.CPUQuota, plan.Int(50000)), set(ctr, plan.CPUQuota, plan.Int(50000))},
			[]plan.Setting{set(ctr, plan.CPUQuota, plan.Int(80000)), set(pod, plan.CPUQuota, plan.Int(80000))},
			[]string{"/cpu" + pod + "/cpu.cfs_quota_us=80000", "/cpu" + ctr + "/cpu.cfs_quota_us=80000"}},
		"v1 period shrinks after the quota": {"v1",
			[]plan.Setting{set(pod, plan.CPUQuota, plan.Int(50000)), set(ctr, plan.CPUQuota, plan.Int(50000))},
			[]plan.Setting{set(ctr, plan.CPUPeriod, plan.Int(50000)), set(ctr, plan.CPUQuota, plan.Int(20000))},
			[]string{"/cpu" + ctr + "/cpu.cfs_quota_us=20000", "/cpu" + ctr + "/cpu.cfs_period_us=50000"}},
		"v1 quota shrinks from inside": {"v1",
			[]plan.Setting{set(pod, plan.CPUQuota, plan.Int(50000)), set(ctr, plan.CPUQuota, plan.Int(50000))},
			[]plan.Setting{set(pod, plan.CPUQuota, plan.Int(20000)), set(ctr, plan.CPUQuota, plan.Int(20000))},
			[]string{"/cpu" + ctr + "/cpu.cfs_quota_us=20000", "/cpu" + pod + "/cpu.cfs_quota_us=20000"}},
		"v1 a pod's shorter period before its smaller quota": {"v1",
			[]plan.Setting{set(ctr, plan.CPUQuota, plan.Int(15000)), set(ctr, plan.CPUPeriod, plan.Int(10000)), set(pod, plan.CPUQuota, plan.Int(150000))},
			[]plan.Setting{ofPod(plan.CPUQuota, 15000), ofPod(plan.CPUPeriod, 10000)},
			[]string{"/cpu" + pod + "/cpu.cfs_period_us=10000", "/cpu" + pod + "/cpu.cfs_quota_us=15000"}},
		"v1 a pod's longer period after its larger quota": {"v1",
			[]plan.Setting{ofPod(plan.CPUQuota, 15000), ofPod(plan.CPUPeriod, 10000)},
			[]plan.Setting{ofPod(plan.CPUQuota, 150000), ofPod(plan.CPUPeriod, 100000)},
			[]string{"/cpu" + pod + "/cpu.cfs_quota_us=150000", "/cpu" + pod + "/cpu.cfs_period_us=100000"}},
		"burst rises after the quota": {"6.12",
			[]plan.Setting{set(ctr, plan.CPUQuota, plan.Int(20000))},
			[]plan.Setting{set(ctr, plan.CPUBurst, plan.Int(50000)), set(ctr, plan.CPUQuota, plan.Int(50000))},
			[]string{ctr + "/cpu.max=50000", ctr + "/cpu.max.burst=50000"}},
		"burst falls before the quota": {"6.12",
			[]plan.Setting{set(ctr, plan.CPUQuota, plan.Int(50000)), set(ctr, plan.CPUBurst, plan.Int(50000))},
			[]plan.Setting{set(ctr, plan.CPUQuota, plan.Int(20000)), set(ctr, plan.CPUBurst, plan.Int(10000))},
			[]string{ctr + "/cpu.max.burst=10000", ctr + "/cpu.max=20000"}},
		"quota below a foreign burst lowers it": {"v1",
			[]plan.Setting{set(ctr, plan.CPUQuota, plan.Int(50000)), set(ctr, plan.CPUBurst, plan.Int(50000))},
			[]plan.Setting{set(ctr, plan.CPUQuota, plan.Int(20000))},
			[]string{"/cpu" + ctr + "/cpu.cfs_burst_us=20000", "/cpu" + ctr + "/cpu.cfs_quota_us=20000"}},
		"v1 cpuset moves through the union": {"v1",
			[]plan.Setting{set(pod, plan.CPUSetCPUs, plan.Text("0-1")), set(ctr, plan.CPUSetCPUs, plan.Text("0-1")), set(ctr2, plan.CPUSetCPUs, plan.Text("1"))},
			[]plan.Setting{set(pod, plan.CPUSetCPUs, plan.Text("2-3")), set(ctr, plan.CPUSetCPUs, plan.Text("2")), set(ctr2, plan.CPUSetCPUs, plan.Text("3"))},
			[]string{"/cpuset" + pod + "/cpuset.cpus=0-3", "/cpuset" + ctr + "/cpuset.cpus=2", "/cpuset" + ctr2 + "/cpuset.cpus=3", "/cpuset" + pod + "/cpuset.cpus=2-3"}},
		"v2 cpuset needs no union": {"6.12",
			[]plan.Setting{set(pod, plan.CPUSetCPUs, plan.Text("0-1")), set(ctr, plan.CPUSetCPUs, plan.Text("0-1"))},
			[]plan.Setting{set(ctr, plan.CPUSetCPUs, plan.Text("2-3")), set(pod, plan.CPUSetCPUs, plan.Text("2-3"))},
			[]string{pod + "/cpuset.cpus=2-3", ctr + "/cpuset.cpus=2-3"}},
		"idle is cleared before the weight": {"6.12",
			[]plan.Setting{set(ctr, plan.CPUIdle, plan.Int(1))},
			[]plan.Setting{set(ctr, plan.CPUShares, plan.Int(2048)), set(ctr, plan.CPUIdle, plan.Int(0))},
			[]string{ctr + "/cpu.idle=0", ctr + "/cpu.weight=174"}},
		"the least weight, too, which an idle cgroup shows": {"6.12",
			[]plan.Setting{set(ctr, plan.CPUIdle, plan.Int(1))},
			[]plan.Setting{set(ctr, plan.CPUShares, plan.Int(2)), set(ctr, plan.CPUIdle, plan.Int(0))},
			[]string{ctr + "/cpu.idle=0", ctr + "/cpu.weight=1"}},
		"idle is set after the weight": {"v1", nil,
			[]plan.Setting{set(ctr, plan.CPUIdle, plan.Int(1)), set(ctr, plan.CPUShares, plan.Int(2))},
			[]string{"/cpu" + ctr + "/cpu.shares=2", "/cpu" + ctr + "/cpu.idle=1"}},
		"v1 memory and swap shrink after memory": {"v1", nil,
			[]plan.Setting{set(ctr, plan.MemoryLimit, plan.Int(1<<20))},
			[]string{"/memory" + ctr + "/memory.limit_in_bytes=1048576", "/memory" + ctr + "/memory.memsw.limit_in_bytes=1048576"}},
		"v1 memory and swap grow before memory": {"v1",
			[]plan.Setting{set(ctr, plan.MemoryLimit, plan.Int(1<<20))},
			[]plan.Setting{set(ctr, plan.MemoryLimit, plan.Int(-1))},
			[]string{"/memory" + ctr + "/memory.memsw.limit_in_bytes=-1", "/memory" + ctr + "/memory.limit_in_bytes=-1"}},
		"cpu.max keeps its other half": {"6.12",
			[]plan.Setting{set(ctr, plan.CPUQuota, plan.Int(50000))},
			[]plan.Setting{set(ctr, plan.CPUPeriod, plan.Int(50000)), set(ctr, plan.CPUQuota, plan.Int(25000))},
			[]string{ctr + "/cpu.max=25000", ctr + "/cpu.max=25000 50000"}},
		"a period comes before the first quota": {"6.12", nil,
			[]plan.Setting{set(ctr, plan.CPUPeriod, plan.Int(50000)), set(ctr, plan.CPUQuota, plan.Int(25000))},
			[]string{ctr + "/cpu.max=max 50000", ctr + "/cpu.max=25000"}},
		"v1 period changes while the pod has no quota": {"v1", nil,
			[]plan.Setting{set(ctr, plan.CPUQuota, plan.Int(5000)), set(pod, plan.CPUQuota, plan.Int(5000)), set(pod, plan.CPUPeriod, plan.Int(10000))},
			[]string{"/cpu" + pod + "/cpu.cfs_period_us=10000", "/cpu" + ctr + "/cpu.cfs_quota_us=5000", "/cpu" + pod + "/cpu.cfs_quota_us=5000"}},
		"v1 period changes back when the pod has none any more": {"v1",
			[]plan.Setting{set(pod, plan.CPUQuota, plan.Int(5000)), set(pod, plan.CPUPeriod, plan.Int(10000)), set(ctr, plan.CPUQuota, plan.Int(5000)), set(ctr, plan.CPUPeriod, plan.Int(10000))},
			[]plan.Setting{set(pod, plan.CPUQuota, plan.Int(-1)), set(pod, plan.CPUPeriod, plan.Int(100000)), set(ctr, plan.CPUQuota, plan.Int(-1))},
			[]string{"/cpu" + pod + "/cpu.cfs_quota_us=-1", "/cpu" + ctr + "/cpu.cfs_quota_us=-1", "/cpu" + pod + "/cpu.cfs_period_us=100000"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, tt.kernel)
			m.apply(t, tt.before...)
			m.Log()
			m.apply(t, tt.plan...)
			same(t, m.Log(), tt.want...)
			if bad := m.Verify(tt.plan); len(bad) != 0 {
				t.Errorf("not in force: %v", bad)
			}
		})
	}
}

func TestValuesAreCutToWhatTheKernelAccepts(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "v1")
	m.Set(t, pod, "cpu.cfs_quota_us", "100000")
	for _, cg := range []string{pod, ctr, ctr2} {
		m.Set(t, cg, "cpuset.cpus", "0-3")
	}
	p := plan.Plan{set(ctr, plan.CPUQuota, plan.Int(300000)), set(ctr, plan.CPUSetCPUs, plan.Text("2-5")), set(ctr, plan.CPUBurst, plan.Int(900000))}
	for range 2 { // the second time nothing is left to do
		for _, r := range m.apply(t, p...) {
			if r.Note == "" {
				t.Errorf("%s was not cut", r.Setting.Knob)
			}
		}
	}
	for file, want := range map[string]string{"cpu.cfs_quota_us": "100000", "cpuset.cpus": "2-3", "cpu.cfs_burst_us": "100000"} {
		if got := m.Get(t, ctr, file); got != want {
			t.Errorf("%s = %s, want %s", file, got, want)
		}
	}
	r := m.Apply(t.Context(), plan.Plan{set(ctr, plan.CPUSetCPUs, plan.Text("6-7"))}, 1)
	if r[0].Outcome != apply.Failed || !strings.Contains(r[0].Err.Error(), pod) {
		t.Errorf("a set outside the parent's: %+v", r[0])
	}
}
