// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What is held open is read anew each time, and let go when it can no longer be read.
func TestParentsReadThePresentQuota(t *testing.T) {
	t.Parallel()
	var p parents
	dir := t.TempDir()
	if p.hold(dir); p.has(dir) {
		t.Error("a directory without the files is held")
	}
	put(t, dir+"/cpu.cfs_quota_us", "50000")
	put(t, dir+"/cpu.cfs_period_us", "100000")
	p.hold(dir)
	p.hold(dir)
	if quota, period, ok := p.get(dir); !ok || quota != 50000 || period != 100000 {
		t.Errorf("%d of %d, %t", quota, period, ok)
	}
	put(t, dir+"/cpu.cfs_quota_us", "-1")
	if quota, _, ok := p.get(dir); !ok || quota != -1 {
		t.Errorf("quota %d, %t after it was lifted", quota, ok)
	}
	put(t, dir+"/cpu.cfs_quota_us", "rubbish")
	if _, _, ok := p.get(dir); ok || p.has(dir) {
		t.Errorf("%t, held %t: of what cannot be read", ok, p.has(dir))
	}
	put(t, dir+"/cpu.cfs_quota_us", "1000")
	p.hold(dir)
	if p.drop(dir); p.has(dir) {
		t.Error("still held after drop")
	}
}

// A pod's file that does not open keeps nobody from the files of other pods: CreateContainer asks for them on the request's own
// goroutine.
func TestParentsWaitOutsideTheLock(t *testing.T) {
	t.Parallel()
	var p parents
	slow, other := t.TempDir(), t.TempDir()
	put(t, other+"/cpu.cfs_quota_us", "50000")
	put(t, other+"/cpu.cfs_period_us", "100000")
	put(t, slow+"/cpu.cfs_period_us", "100000")
	pipe := slow + "/cpu.cfs_quota_us" // opening it waits for somebody who writes
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.hold(slow)
	}()
	opening := func(stack string) bool {
		return strings.Contains(stack, "TestParentsWaitOutsideTheLock") && strings.Contains(stack, "kernel/root.Hold(")
	}
	for all := make([]byte, 1<<20); !slices.ContainsFunc(strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n"), opening); {
		runtime.Gosched()
	}
	if p.has(slow) {
		t.Error("held before it is open")
	}
	p.hold(other)
	if quota, _, ok := p.get(other); !ok || quota != 50000 {
		t.Errorf("%d, %t", quota, ok)
	}
	p.drop(other)
	fd, err := unix.Open(pipe, unix.O_RDWR|unix.O_NONBLOCK, 0) // lets the other one in
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	<-done
	if p.has(slow) {
		t.Error("a pipe is held")
	}
}

// What a plan makes Live look up, before and after the pod's quota is held open.
func TestLooksUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir+"/cpu/pod/cpu.cfs_quota_us", "50000")
	put(t, dir+"/cpu/pod/cpu.cfs_period_us", "100000")
	v1 := &Live{CPUDir: dir + "/cpu", CPUSetDir: dir + "/cpuset", MemoryDir: dir + "/memory"}
	held := &Live{CPUDir: dir + "/cpu"}
	held.hold("/pod")
	t.Cleanup(func() { held.drop("/pod") })
	asks := &Live{CDI: func() map[string]struct{} { return nil }}
	quota := func(n int64) plan.Setting { return plan.Setting{Knob: plan.CPUQuota, Value: plan.Int(n)} }
	for name, tc := range map[string]struct {
		live *Live
		v    node.CgroupVersion
		s    plan.Setting
		want bool
	}{
		"nothing to check":      {nil, node.CgroupV1, quota(1000), false},
		"quota":                 {v1, node.CgroupV1, quota(1000), true},
		"no quota":              {v1, node.CgroupV1, quota(-1), false},
		"quota on v2":           {&Live{}, node.CgroupV2, quota(1000), false},
		"quota in a held pod":   {held, node.CgroupV1, quota(1000), false},
		"cpuset":                {v1, node.CgroupV1, plan.Setting{Knob: plan.CPUSetCPUs, Value: plan.Text("0")}, true},
		"first memory limit":    {v1, node.CgroupV1, plan.Setting{Knob: plan.MemoryLimit, Value: plan.Int(1)}, true},
		"burst":                 {v1, node.CgroupV1, plan.Setting{Knob: plan.CPUBurst, Value: plan.Int(1)}, false},
		"resctrl group":         {&Live{}, node.CgroupV2, plan.Setting{Knob: plan.RDTClass, Value: plan.Text("BE")}, true},
		"CDI device":            {asks, node.CgroupV2, plan.Setting{Knob: plan.CDIDevice, Key: "x"}, true},
		"mount of ours":         {&Live{}, node.CgroupV2, plan.Setting{Knob: plan.Mount, Key: "/x"}, true},
		"a hook server's mount": {&Live{}, node.CgroupV2, plan.Setting{Knob: plan.Mount, Key: "/x", Hook: "h"}, false},
		"CDI device, no lookup": {v1, node.CgroupV1, plan.Setting{Knob: plan.CDIDevice, Key: "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.s.Target.Level = plan.LevelContainer
			v := &node.View{Kernel: node.Kernel{Cgroup: tc.v}}
			c := &workload.Container{Cgroup: "/pod/new"}
			if got := tc.live.looksUp(v, c, plan.Plan{tc.s}); got != tc.want {
				t.Errorf("got %t", got)
			}
			tc.s.Observe = true
			if tc.live.looksUp(v, c, plan.Plan{tc.s}) {
				t.Error("it looks up what is only observed")
			}
		})
	}
	if held.quotaFits(&workload.Container{Cgroup: "/pod/new"}, nil, 60000) {
		t.Error("60000 fit below a held 50000")
	}
}
