// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/koord-rt/koord-rt/model/topo"
)

// envCaches is how many last-level caches a NUMA node of this guest has, 1 where it says nothing.
const envCaches = "KOORD_RT_CACHES"

// near are the lists of sysfs that say which CPUs are close to one, below its folder.
var near = []struct{ what, list string }{
	{"NUMA nodes", "node[0-9]*/cpulist"}, {"last-level caches", "cache/index3/shared_cpu_list"}, {"cores", "topology/thread_siblings_list"},
}

// closeTo are the CPUs that a list names for a CPU.
func (r *rig) closeTo(cpu int, list string) topo.CPUSet {
	r.t.Helper()
	files, err := filepath.Glob("/sys/devices/system/cpu/cpu" + strconv.Itoa(cpu) + "/" + list)
	if err != nil || len(files) != 1 {
		r.t.Fatalf("%s of CPU %d: %v, %v", list, cpu, files, err)
	}
	set, err := topo.ParseCPUSet(r.file(filepath.Dir(files[0]), filepath.Base(files[0])))
	if err != nil {
		r.t.Fatalf("%s: %v", files[0], err)
	}
	return set
}

// isLocal is the set of a cgroup. It must lie on as few NUMA nodes, last-level caches and cores, of the same size each, as its number allows.
func (r *rig) isLocal(dir string) string {
	r.t.Helper()
	text := r.file(dir, "cpuset.cpus")
	set, err := topo.ParseCPUSet(text)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, n := range near {
		on := map[string]bool{}
		for _, cpu := range set.List() {
			on[r.closeTo(cpu, n.list).String()] = true
		}
		size := r.closeTo(0, n.list).Len()
		if fewest := (set.Len() + size - 1) / size; len(on) != fewest {
			r.t.Errorf("CPUs %s of %s are spread over %d %s, want %d", text, dir, len(on), n.what, fewest)
		}
	}
	return text
}

// cachesAsSaid: the guest has the last-level caches that it was given.
func (r *rig) cachesAsSaid() {
	r.t.Helper()
	want := 1
	if text := os.Getenv(envCaches); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			r.t.Fatalf("%s: %v", envCaches, err)
		}
		want = n
	}
	caches := map[string]bool{}
	for cpu := range runtime.NumCPU() {
		caches[r.closeTo(cpu, near[1].list).String()] = true
	}
	nodes := runtime.NumCPU() / r.closeTo(0, near[0].list).Len()
	if len(caches) != want*nodes {
		r.t.Fatalf("%d NUMA nodes have the last-level caches %v, want %d each", nodes, caches, want)
	}
}
