// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/topo"
)

// cpuFiles describes one CPU. l3 < 0 leaves the cache out.
func cpuFiles(files map[string]string, id, core, socket, l3 int, siblings string) {
	dir := fmt.Sprintf("devices/system/cpu/cpu%d/", id)
	files[dir+"topology/core_id"] = fmt.Sprint(core)
	files[dir+"topology/physical_package_id"] = fmt.Sprint(socket)
	files[dir+"topology/thread_siblings_list"] = siblings
	files[dir+"cache/index0/level"] = "1"
	if l3 >= 0 {
		files[dir+"cache/index3/level"] = "3"
		files[dir+"cache/index3/id"] = fmt.Sprint(l3)
	}
}

func TestTopologyTwoSockets(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"devices/system/cpu/online":          "0-2,4-5",
		"devices/system/node/online":         "0-2",
		"devices/system/node/has_memory":     "0,2",
		"devices/system/node/node0/cpulist":  "0-2",
		"devices/system/node/node1/cpulist":  "4-5",
		"devices/system/node/node2/cpulist":  "",
		"devices/system/cpu/cpu3/hotplug/no": "offline",
	}
	cpuFiles(files, 0, 0, 0, 0, "0,2")
	cpuFiles(files, 1, 1, 0, 0, "1")
	cpuFiles(files, 2, 0, 0, 0, "0,2")
	cpuFiles(files, 4, 0, 1, 8, "4-5")
	cpuFiles(files, 5, 0, 1, 8, "4-5")
	got, err := FS(kerneltest.Lay(t, files, "\n")).Topology()
	if err != nil {
		t.Fatal(err)
	}
	want := []topo.CPU{{ID: 0}, {ID: 1, Core: 1}, {ID: 2}, {ID: 4, Socket: 1, Node: 1, L3: 8}, {ID: 5, Socket: 1, Node: 1, L3: 8}}
	if !reflect.DeepEqual(got.CPUs, want) {
		t.Errorf("got %+v", got.CPUs)
	}
	if got.Nodes.String() != "0,2" || got.NodeCPUs(1).String() != "4-5" || !got.SMT() {
		t.Errorf("nodes %s, node 1 has %s, SMT %v", got.Nodes, got.NodeCPUs(1), got.SMT())
	}
}

func TestTopologyBare(t *testing.T) {
	t.Parallel()
	got, err := FS(kerneltest.Lay(t, map[string]string{"devices/system/cpu/online": "0-1"}, "\n")).Topology()
	if err != nil {
		t.Fatal(err)
	}
	want := []topo.CPU{{ID: 0, L3: -1}, {ID: 1, Core: 1, L3: -1}}
	if !reflect.DeepEqual(got.CPUs, want) || got.Nodes.String() != "0" {
		t.Errorf("got %+v, nodes %s", got.CPUs, got.Nodes)
	}
}

// Two dies of one socket that number their cores alike are not SMT siblings.
func TestTopologyRepeatedCoreIDs(t *testing.T) {
	t.Parallel()
	files := map[string]string{"devices/system/cpu/online": "0-3"}
	cpuFiles(files, 0, 0, 0, 0, "0,2")
	cpuFiles(files, 1, 0, 0, 1, "1,3")
	cpuFiles(files, 2, 0, 0, 0, "0,2")
	cpuFiles(files, 3, 0, 0, 1, "1,3")
	got, err := FS(kerneltest.Lay(t, files, "\n")).Topology()
	if err != nil {
		t.Fatal(err)
	}
	if c := got.CPUs; c[0].Core != c[2].Core || c[1].Core != c[3].Core || c[0].Core == c[1].Core {
		t.Errorf("got %+v", c)
	}
}

func TestTopologyErrors(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"no sysfs":  {},
		"no CPU":    {"devices/system/cpu/online": ""},
		"not a set": {"devices/system/cpu/online": "0-4294967295"},
		"bad core":  {"devices/system/cpu/online": "0", "devices/system/cpu/cpu0/topology/core_id": "x"},
		"bad nodes": {"devices/system/cpu/online": "0", "devices/system/node/online": "3-1"},
		"no list":   {"devices/system/cpu/online": "0", "devices/system/node/online": "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := FS(kerneltest.Lay(t, files, "\n")).Topology(); err == nil {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestTopologyOfThisHost(t *testing.T) {
	t.Parallel()
	got, err := FS("/sys").Topology()
	if err != nil {
		t.Fatal(err)
	}
	if got.All().Len() < runtime.NumCPU() || got.Nodes.Empty() {
		t.Errorf("CPUs %s, nodes %s, the runtime sees %d", got.All(), got.Nodes, runtime.NumCPU())
	}
}
