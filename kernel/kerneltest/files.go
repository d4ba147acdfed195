// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest

import (
	"fmt"
	"os"
	"testing"
)

const unlimited1 = "9223372036854771712\n"

// v2Files are a new cgroup's files on v2, as kernels from 5.14 on show them.
func v2Files(anolis bool) map[string]string {
	f := map[string]string{
		"cgroup.procs": "", "cgroup.threads": "", "cgroup.controllers": "cpuset cpu io memory pids\n", "cgroup.subtree_control": "cpuset cpu io memory pids\n",
		"cpu.weight": "100\n", "cpu.max": "max 100000\n", "cpu.max.burst": "0\n", "cpu.idle": "0\n",
		"cpu.stat":    "usage_usec 0\nuser_usec 0\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n",
		"cpuset.cpus": "\n", "cpuset.mems": "\n", "cpuset.cpus.effective": CPUs + "\n", "cpuset.mems.effective": Mems + "\n",
		"memory.current": "0\n", "memory.min": "0\n", "memory.low": "0\n", "memory.high": "max\n", "memory.max": "max\n", "memory.oom.group": "0\n",
		"memory.swap.max": "max\n", "io.max": "", "io.weight": "default 100\n", "io.latency": "",
	}
	if anolis {
		for name, content := range anolisFiles() {
			f[name] = content
		}
		f["cpu.bvt_warp_ns"] = "0\n"
		f["memory.pagecache_limit.enable"] = "0\n"
		f["memory.pagecache_limit.size"] = "0\n"
		f["memory.pagecache_limit.sync"] = "0\n"
	}
	return f
}

// v1Files are a new cgroup's files on v1, with the controller in front.
func v1Files(anolis bool) map[string]string {
	f := map[string]string{
		"cpu/cgroup.procs": "", "cpuset/cgroup.procs": "", "memory/cgroup.procs": "", "blkio/cgroup.procs": "", "cpu/tasks": "",
		"cpu/cpu.shares": "1024\n", "cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n", "cpu/cpu.cfs_burst_us": "0\n", "cpu/cpu.idle": "0\n",
		"cpu/cpu.stat":       "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
		"cpuset/cpuset.cpus": "\n", "cpuset/cpuset.mems": "\n",
		"memory/memory.limit_in_bytes": unlimited1, "memory/memory.memsw.limit_in_bytes": unlimited1, "memory/memory.usage_in_bytes": "0\n",
		"blkio/blkio.throttle.read_bps_device": "", "blkio/blkio.throttle.write_bps_device": "",
		"blkio/blkio.throttle.read_iops_device": "", "blkio/blkio.throttle.write_iops_device": "",
	}
	if anolis {
		for name, content := range anolisFiles() {
			f["memory/"+name] = content
		}
		f["cpu/cpu.bvt_warp_ns"] = "0\n"
		f["memory/memory.min"] = "0\n"
		f["memory/memory.low"] = "0\n"
		f["memory/memory.high"] = "max\n"
		f["memory/memory.oom.group"] = "0\n"
		f["blkio/blkio.cost.weight"] = "default 100\n"
	}
	return f
}

func anolisFiles() map[string]string {
	return map[string]string{
		"memory.wmark_ratio": "0\n", "memory.wmark_scale_factor": "50\n", "memory.wmark_min_adj": "0\n",
		"memory.priority": "0\n", "memory.use_priority_oom": "0\n",
	}
}

// topology is a machine of 8 CPUs: two NUMA nodes that are two sockets with a cache each, two cores each, two threads per
// core. Threads of one core are n and n+4; node 0 has 0,1,4,5 and node 1 has 2,3,6,7.
func (tr *Tree) topology(t testing.TB) {
	sys := tr.Roots.Sys + "/devices/system"
	for _, f := range []string{"online", "present", "possible"} {
		tr.put(t, sys+"/cpu/"+f, CPUs+"\n")
		tr.put(t, sys+"/node/"+f, Mems+"\n")
	}
	tr.put(t, sys+"/node/has_memory", Mems+"\n")
	tr.put(t, sys+"/cpu/smt/active", "1\n")
	lists := [2]string{"0-1,4-5", "2-3,6-7"}
	for n, list := range lists {
		dir := fmt.Sprintf("%s/node/node%d", sys, n)
		tr.put(t, dir+"/cpulist", list+"\n")
		tr.put(t, dir+"/meminfo", fmt.Sprintf("Node %d MemTotal:        8192000 kB\nNode %d MemFree:         8000000 kB\n", n, n))
		tr.put(t, dir+"/distance", "10 20\n")
	}
	for cpu := range 8 {
		n, core := cpu%4/2, cpu%2
		dir := fmt.Sprintf("%s/cpu/cpu%d", sys, cpu)
		siblings := fmt.Sprintf("%d,%d\n", cpu%4, cpu%4+4)
		for name, content := range map[string]string{
			"topology/core_id": fmt.Sprintf("%d\n", core), "topology/physical_package_id": fmt.Sprintf("%d\n", n),
			"topology/thread_siblings_list": siblings, "topology/core_cpus_list": siblings, "topology/die_id": "0\n",
			"cache/index3/id": fmt.Sprintf("%d\n", n), "cache/index3/level": "3\n", "cache/index3/type": "Unified\n",
			"cache/index3/shared_cpu_list": lists[n] + "\n", "cache/index3/size": "32768K\n",
		} {
			tr.put(t, dir+"/"+name, content)
		}
		must(t, os.Symlink(fmt.Sprintf("../../node/node%d", n), fmt.Sprintf("%s/node%d", dir, n)))
	}
}

// Resctrl mounts resctrl: 20-bit masks on two caches, 16 classes; MB in percent when mb, counters when mon.
func (tr *Tree) Resctrl(t testing.TB, mb, mon bool) {
	t.Helper()
	r := tr.Roots.Resctrl
	files := map[string]string{
		"info/L3/cbm_mask": "fffff\n", "info/L3/min_cbm_bits": "1\n", "info/L3/num_closids": "16\n", "info/L3/shareable_bits": "0\n",
		"info/L3/sparse_masks": "0\n", "info/L3/bit_usage": "0=SSSSSSSSSSSSSSSSSSSS;1=SSSSSSSSSSSSSSSSSSSS\n", "info/last_cmd_status": "ok\n",
		"tasks": "1\n", "cpus": "ff\n", "cpus_list": CPUs + "\n", "mode": "shareable\n", "size": "L3:0=33554432;1=33554432\n",
	}
	if mb {
		files["info/MB/bandwidth_gran"] = "10\n"
		files["info/MB/min_bandwidth"] = "10\n"
		files["info/MB/num_closids"] = "8\n"
		files["info/MB/delay_linear"] = "1\n"
	}
	if mon {
		files["info/L3_MON/num_rmids"] = "176\n"
		files["info/L3_MON/mon_features"] = "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"
		files["info/L3_MON/max_threshold_occupancy"] = "65536\n"
		must(t, os.MkdirAll(r+"/mon_groups", 0o755))
	}
	files["schemata"] = schemata(mb)
	for name, content := range files {
		tr.put(t, r+"/"+name, content)
	}
	tr.MonData(t, "")
}

// Group makes a resctrl control group as mkdir does: everything allowed, nobody in it.
func (tr *Tree) Group(t testing.TB, name string) {
	t.Helper()
	_, err := os.Stat(tr.Roots.Resctrl + "/info/MB")
	dir := tr.Roots.Resctrl + "/" + name
	for f, content := range map[string]string{"schemata": schemata(err == nil), "tasks": "", "cpus": "00\n", "cpus_list": "\n", "mode": "shareable\n"} {
		tr.put(t, dir+"/"+f, content)
	}
	if _, err := os.Stat(tr.Roots.Resctrl + "/mon_groups"); err == nil {
		must(t, os.MkdirAll(dir+"/mon_groups", 0o755))
	}
	tr.MonData(t, name)
}

// MonData gives a group its counters, where the machine counts.
func (tr *Tree) MonData(t testing.TB, group string) {
	t.Helper()
	if _, err := os.Stat(tr.Roots.Resctrl + "/info/L3_MON"); err != nil {
		return
	}
	for _, domain := range []string{"00", "01"} {
		for _, f := range []string{"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"} {
			tr.put(t, tr.Roots.Resctrl+"/"+group+"/mon_data/mon_L3_"+domain+"/"+f, "0\n")
		}
	}
}

// schemata is a new group's file, aligned as the kernel prints it.
func schemata(mb bool) string {
	if !mb {
		return "L3:0=fffff;1=fffff\n"
	}
	return "    MB:0=100;1=100\n    L3:0=fffff;1=fffff\n"
}
