// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/model/topo"
)

const (
	cpuDir  = "devices/system/cpu"
	nodeDir = "devices/system/node"
)

// Topology reads the online CPUs from devices/system/cpu (Documentation/admin-guide/cputopology.rst): core and socket
// from cpuN/topology, the cache id from cpuN/cache/index*/ whose level is 3, and the NUMA node from
// devices/system/node/nodeN/cpulist. A kernel without NUMA has one node 0; a missing core_id or socket is the CPU itself
// and socket 0, as on machines whose firmware does not tell.
func (fs FS) Topology() (*topo.Topology, error) {
	online, err := fs.listAt(cpuDir, "online")
	if err != nil {
		return nil, fmt.Errorf("read topology: %w", err)
	}
	if online.Empty() {
		return nil, fmt.Errorf("read topology: %s lists no CPU", fs.Path(cpuDir, "online"))
	}
	nodeOf, memNodes, err := fs.nodes()
	if err != nil {
		return nil, fmt.Errorf("read topology: %w", err)
	}
	cpus := make([]topo.CPU, 0, online.Len())
	siblings := make(map[int]topo.CPUSet, online.Len())
	for _, id := range online.List() {
		cpu, same, err := fs.cpu(id)
		if err != nil {
			return nil, fmt.Errorf("read topology: %w", err)
		}
		cpu.Node = nodeOf[id]
		cpus = append(cpus, cpu)
		siblings[id] = same
	}
	uniqueCores(cpus, siblings)
	return topo.New(cpus, memNodes), nil
}

func (fs FS) cpu(id int) (topo.CPU, topo.CPUSet, error) {
	dir := cpuDir + "/cpu" + strconv.Itoa(id)
	cpu := topo.CPU{ID: id, L3: -1}
	var err error
	if cpu.Core, err = orDefault(fs.intAt(dir, "topology/core_id"))(id); err != nil {
		return cpu, topo.CPUSet{}, err
	}
	if cpu.Socket, err = orDefault(fs.intAt(dir, "topology/physical_package_id"))(0); err != nil {
		return cpu, topo.CPUSet{}, err
	}
	// -1 where the firmware gives no package.
	cpu.Socket = max(cpu.Socket, 0)
	same, err := fs.listAt(dir, "topology/thread_siblings_list")
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return cpu, same, err
	}
	cpu.L3, err = fs.l3(dir)
	return cpu, same, err
}

// l3 finds the id of the CPU's level-3 cache, -1 for none. It is index3 on x86 with split L1 caches and another index
// elsewhere; the id file is absent on hypervisors that hide it and before Linux 4.11.
func (fs FS) l3(cpu string) (int, error) {
	names, err := fs.names(cpu, "cache")
	if err != nil {
		return -1, err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "index") {
			continue
		}
		if level, err := fs.intAt(cpu, "cache", name, "level"); err != nil || level != 3 {
			continue
		}
		return orDefault(fs.intAt(cpu, "cache", name, "id"))(-1)
	}
	return -1, nil
}

// nodes maps each CPU to its NUMA node and lists the online nodes with memory.
func (fs FS) nodes() (map[int]int, topo.CPUSet, error) {
	nodeOf := map[int]int{}
	online, err := fs.listAt(nodeDir, "online")
	if errors.Is(err, iofs.ErrNotExist) {
		return nodeOf, topo.CPUs(0), nil // CONFIG_NUMA is off
	}
	if err != nil {
		return nil, topo.CPUSet{}, err
	}
	for _, n := range online.List() {
		cpus, err := fs.listAt(nodeDir, "node"+strconv.Itoa(n), "cpulist")
		if err != nil {
			return nil, topo.CPUSet{}, err
		}
		for _, c := range cpus.List() {
			nodeOf[c] = n
		}
	}
	mem, err := fs.listAt(nodeDir, "has_memory")
	if errors.Is(err, iofs.ErrNotExist) {
		return nodeOf, online, nil
	}
	return nodeOf, mem.Intersect(online), err
}

// uniqueCores makes (socket, core) name a core even where core_id repeats within a socket, as on parts with several
// dies: the kernel's sibling lists decide, and the lowest CPU of a core becomes its number on the whole machine.
func uniqueCores(cpus []topo.CPU, siblings map[int]topo.CPUSet) {
	first := map[[2]int]int{}
	clash := false
	for _, c := range cpus {
		key := [2]int{c.Socket, c.Core}
		if one, seen := first[key]; !seen {
			first[key] = c.ID
		} else if !siblings[c.ID].Has(one) {
			clash = true
		}
	}
	if !clash {
		return
	}
	for i := range cpus {
		if ids := siblings[cpus[i].ID].List(); len(ids) > 0 {
			cpus[i].Core = ids[0]
		}
	}
}

// orDefault replaces a value whose file does not exist.
func orDefault(n int, err error) func(int) (int, error) {
	return func(def int) (int, error) {
		if errors.Is(err, iofs.ErrNotExist) {
			return def, nil
		}
		return n, err
	}
}
