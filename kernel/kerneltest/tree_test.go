// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

const (
	pod = "/kubepods/podX"
	ctr = pod + "/c"
)

// TestRules: the fake kernel refuses what the real one refuses (facts 2.7, 5.1; kernel/apply's TestRealV1 checks the same
// on a real v1), and shows what the real one shows.
func TestRules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kernel, cgroup, file, write string
		errno                       error
		reads                       string
	}{
		{"6.12", ctr, "cpu.max", "50000", nil, "50000 100000"},
		{"6.12", ctr, "cpu.max", "999", unix.EINVAL, "50000 100000"},
		{"6.12", ctr, "cpu.max.burst", "60000", unix.EINVAL, "0"},
		{"6.12", ctr, "cpu.max.burst", "40000", nil, "40000"},
		{"6.12", ctr, "cpu.max", "30000", unix.EINVAL, "50000 100000"},
		{"6.12", ctr, "cpu.idle", "1", nil, "1"},
		{"6.12", ctr, "cpu.weight", "50", unix.EINVAL, "1"},
		{"6.12", ctr, "cpu.idle", "0", nil, "0"},
		{"6.12", ctr, "cpu.weight", "50", nil, "50"},
		{"6.12", ctr, "memory.high", "10000", nil, "8192"},
		{"6.12", ctr, "memory.high", "-1", unix.EINVAL, "8192"},
		{"6.12", ctr, "io.max", "8:0 wbps=5", nil, "8:0 rbps=max wbps=5 riops=max wiops=max"},
		{"6.12", ctr, "io.max", "8:0 rbps=6", nil, "8:0 rbps=6 wbps=5 riops=max wiops=max"},
		{"6.12", ctr, "io.weight", "8:0 50", nil, "default 100\n8:0 50"},
		{"6.12", ctr, "io.latency", "8:0 target=0", nil, ""},
		{"6.12", "", "io.cost.qos", "8:0 enable=1", nil, "8:0 enable=1 ctrl=auto rpct=0.00 rlat=25000 wpct=0.00 wlat=25000 min=1.00 max=10000.00"},
		{"6.12", "", "io.cost.qos", "8:0 rpct=95 rlat=7", nil, "8:0 enable=1 ctrl=user rpct=95.00 rlat=7 wpct=0.00 wlat=25000 min=1.00 max=10000.00"},
		{"6.12", "", "io.cost.qos", "8:0 rpct=101", unix.EINVAL, "8:0 enable=1 ctrl=user rpct=95.00 rlat=7 wpct=0.00 wlat=25000 min=1.00 max=10000.00"},
		{"6.12", "", "io.cost.qos", "8:0 enable=0 ctrl=auto", nil, "8:0 enable=0 ctrl=auto rpct=0.00 rlat=25000 wpct=0.00 wlat=25000 min=1.00 max=10000.00"},
		{"6.12", ctr, "cpuset.cpus", "0-9", unix.EINVAL, ""},
		{"6.12", ctr, "cpu.bvt_warp_ns", "2", unix.ENOENT, ""},
		{"v1", pod, "cpu.cfs_quota_us", "50000", nil, "50000"},
		{"v1", ctr, "cpu.cfs_quota_us", "60000", unix.EINVAL, "-1"},
		{"v1", ctr, "cpu.cfs_quota_us", "40000", nil, "40000"},
		{"v1", ctr, "cpu.cfs_period_us", "50000", unix.EINVAL, "100000"},
		{"v1", ctr, "cpu.cfs_period_us", "999", unix.EINVAL, "100000"},
		{"v1", pod, "cpu.cfs_period_us", "200000", unix.EINVAL, "100000"},
		{"v1", pod, "cpu.cfs_period_us", "50000", nil, "50000"},
		{"v1", ctr, "cpuset.cpus", "0-1", nil, "0-1"},
		{"v1", pod, "cpuset.cpus", "1-2", unix.EBUSY, "0-7"},
		{"v1", pod, "cpuset.cpus", "0-3", nil, "0-3"},
		{"v1", ctr, "cpuset.cpus", "4", unix.EACCES, "0-1"},
		{"v1", ctr, "memory.memsw.limit_in_bytes", "8192", unix.EINVAL, "9223372036854771712"},
		{"v1", ctr, "memory.limit_in_bytes", "8192", nil, "8192"},
		{"v1", ctr, "blkio.throttle.read_bps_device", "8:0 7", nil, "8:0 7"},
		{"v1", ctr, "blkio.throttle.read_bps_device", "8:0 0", nil, ""},
		{"anolis", ctr, "cpu.bvt_warp_ns", "-1", nil, "-1"},
	}
	trees := map[string]*kerneltest.Tree{}
	for _, k := range []string{"6.12", "v1", "anolis"} {
		trees[k] = kerneltest.New(t, k, ctr)
	}
	for _, tt := range tests {
		tr := trees[tt.kernel]
		if err := tr.Write(tr.Path(tt.cgroup, tt.file), tt.write, false); !errors.Is(err, tt.errno) || (err == nil) != (tt.errno == nil) {
			t.Errorf("%s %s = %s: %v, want %v", tt.kernel, tt.file, tt.write, err, tt.errno)
		}
		if tt.errno == unix.ENOENT {
			continue
		}
		if got := tr.Get(t, tt.cgroup, tt.file); got != tt.reads {
			t.Errorf("%s %s after %s reads %q, want %q", tt.kernel, tt.file, tt.write, got, tt.reads)
		}
	}
}

func TestSnapshotDiff(t *testing.T) {
	t.Parallel()
	tr := kerneltest.New(t, "7.2", ctr)
	tr.Resctrl(t, true, true)
	before := tr.Snapshot(t)
	if diff := kerneltest.Diff(before, tr.Snapshot(t)); diff != "" {
		t.Errorf("unchanged tree differs:\n%s", diff)
	}
	tr.Set(t, ctr, "memory.high", "4096")
	tr.Group(t, "BE")
	if err := tr.Write(tr.Roots.Resctrl+"/BE/schemata", "L3:1=f", false); err != nil {
		t.Fatal(err)
	}
	diff := kerneltest.Diff(before, tr.Snapshot(t))
	for _, want := range []string{`memory.high: "max\n" → "4096\n"`, `+ /fs/resctrl/BE/schemata: "    MB:0=100;1=100\n    L3:0=fffff;1=f\n"`} {
		if !strings.Contains(diff, want) {
			t.Errorf("diff lacks %s:\n%s", want, diff)
		}
	}
	tr.Rmdir(t, pod)
	if tr.Exists(ctr) || !tr.Exists("/kubepods") {
		t.Error("Rmdir removed the wrong directories")
	}
	if b, err := os.ReadFile(tr.Roots.Sys + "/devices/system/cpu/cpu5/topology/thread_siblings_list"); err != nil || string(b) != "1,5\n" {
		t.Errorf("siblings %q, %v", b, err)
	}
}
