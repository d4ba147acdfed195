// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// The tables below are for intervals of many seconds: their files are opened at each call and closed again, so that they
// cost no descriptors. Slices in the result are reused. All of them give ErrNoFile where kernel, version or controller lack
// the file, which is also what a cgroup that is gone looks like here: Read tells the two apart.

// Device is what a cgroup did to one block device since the cgroup was made.
type Device struct {
	Major, Minor uint32
	// ReadBytes and WriteBytes; Reads and Writes count requests.
	ReadBytes, WriteBytes, Reads, Writes uint64
}

// IO is the block IO of a cgroup and everything below it, by device.
type IO struct{ Devices []Device }

// NUMA is where a cgroup's memory lies: bytes by node, the index is the node's id. Anon + Unevictable is the memory without
// page cache, as Memory.WithoutPageCache.
type NUMA struct{ Nodes []NodeMemory }

// NodeMemory is the part on one node.
type NodeMemory struct{ Anon, File, Unevictable unit.Bytes }

// Limits are what bounds a cgroup, in units of model/unit.
type Limits struct {
	// CPU is quota/period; unit.Unlimited without a quota.
	CPU unit.MilliCPU
	// CPUs counts the CPUs that the cgroup may run on, 0 where that is not told.
	CPUs int
	// Memory is unit.Unlimited without a limit.
	Memory unit.Bytes
}

// Events count what happened to a cgroup's memory since it was made.
type Events struct {
	// High: throttled at memory.high (v2 only). Max: the limit was hit (v1: memory.failcnt).
	High, Max uint64
}

// IO reads io.stat, or blkio.throttle.*_recursive on v1, where buffered writes are not charged to whom they belong to.
func (c *Cgroup) IO(b *root.Buffer, out *IO) error {
	out.Devices = out.Devices[:0]
	return c.fs.tables.io(c, b, out)
}

// NUMA reads memory.numa_stat.
func (c *Cgroup) NUMA(b *root.Buffer, out *NUMA) error {
	out.Nodes = out.Nodes[:0]
	return c.fs.tables.numa(c, b, out)
}

// Limits reads the quota, the CPUs and the memory limit of the cgroup itself, not of its ancestors. What is not there is
// unlimited.
func (c *Cgroup) Limits(b *root.Buffer, out *Limits) error {
	*out = Limits{CPU: unit.Unlimited, Memory: unit.Unlimited}
	return c.fs.tables.limits(c, b, out)
}

// Events reads memory.events, or memory.failcnt on v1.
func (c *Cgroup) Events(b *root.Buffer, out *Events) error {
	*out = Events{}
	return c.fs.tables.events(c, b, out)
}

// Procs lists the processes in the cgroup and below it, where an init system or a container engine inside a container has them, in ids'
// order, up to limit of them: cgroup.procs (cgroup-v2.rst, "Core Interface Files"). The slice is reused.
func (c *Cgroup) Procs(b *root.Buffer, limit int, out *[]int) error {
	*out = (*out)[:0]
	err := c.procs(b, c.path, maxBelow, out)
	slices.Sort(*out)
	*out = (*out)[:min(limit, len(*out))]
	return err
}

// procs adds the processes of the cgroup at path and of those below it.
func (c *Cgroup) procs(b *root.Buffer, path string, deep int, out *[]int) error {
	if err := table(b, c.fs.cpu, path, "cgroup.procs", parseProcs, out); err != nil || deep == 0 {
		return err
	}
	names, err := b.Below(c.fs.cpu, path)
	if err != nil && !gone(err) {
		return err
	}
	for _, name := range names {
		// No such file: it is gone since, or a threaded one, whose processes its domain lists.
		if err := c.procs(b, path+"/"+name, deep-1, out); err != nil && !errors.Is(err, ErrNoFile) {
			return err
		}
	}
	return nil
}

// parseProcs reads ids, one per line; 0 is a process of another pid namespace (cgroup-v2.rst, "Core Interface Files").
func parseProcs(b []byte, out *[]int) error {
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		n, ok := scan.Uint(line)
		if !ok || n > math.MaxInt32 {
			return scan.ErrFormat
		}
		if n > 0 {
			*out = append(*out, int(n))
		}
	}
	return nil
}

// Pressure reads cpu.pressure, memory.pressure or io.pressure; resource is the first word.
func (c *Cgroup) Pressure(b *root.Buffer, resource string, out *psi.Stat) error {
	for _, base := range c.fs.pressure {
		raw, err := b.Read(base, c.path, "/", resource, ".pressure")
		// EOPNOTSUPP: psi=0, or cgroup.pressure is 0.
		if gone(err) || errors.Is(err, unix.EOPNOTSUPP) {
			continue
		}
		if err != nil {
			return err
		}
		if err := psi.Parse(raw, out); err != nil {
			return fmt.Errorf("parse %s%s/%s.pressure: %w", base, c.path, resource, err)
		}
		return nil
	}
	return ErrNoFile
}

// PressureFile is the absolute path of a pressure file for psi triggers; empty where there is none.
func (c *Cgroup) PressureFile(resource string) string { return c.fs.PressureFile(c.path, resource) }

// PressureFile is that of the cgroup at path, "/kubepods/besteffort"; of the root, "", it says whether this machine's cgroups have any.
func (fs *FS) PressureFile(path, resource string) string {
	for _, base := range fs.pressure {
		path := base + path + "/" + resource + ".pressure"
		if unix.Access(path, unix.F_OK) == nil {
			return path
		}
	}
	return ""
}

// table reads one file and parses it.
func table[T any](b *root.Buffer, base, path, name string, parse func([]byte, *T) error, out *T) error {
	if base == "" {
		return ErrNoFile
	}
	raw, err := b.Read(base, path, "/", name)
	if gone(err) || errors.Is(err, unix.EOPNOTSUPP) {
		return ErrNoFile
	}
	if err != nil {
		return err
	}
	if err := parse(raw, out); err != nil {
		return fmt.Errorf("parse %s%s/%s: %w", base, path, name, err)
	}
	return nil
}

// maxDevices bounds the search below, which is linear for want of allocations. A machine has a few block devices, with many paths to a SAN
// some thousand.
const maxDevices = 1 << 14

// device finds the row of a device or adds one, nil where there are too many. It begins with the last: v1 has lines of one device in a row.
func (io *IO) device(major, minor uint64) *Device {
	for i := len(io.Devices) - 1; i >= 0; i-- {
		if d := &io.Devices[i]; uint64(d.Major) == major && uint64(d.Minor) == minor {
			return d
		}
	}
	if len(io.Devices) == maxDevices {
		return nil
	}
	io.Devices = append(io.Devices, Device{Major: uint32(major), Minor: uint32(minor)}) //nolint:gosec // deviceID bounds them
	return &io.Devices[len(io.Devices)-1]
}

// maxNodes is MAX_NUMNODES of the largest configurations.
const maxNodes = 1024

// node finds the row of a NUMA node or adds it with those before it.
func (n *NUMA) node(id uint64) *NodeMemory {
	if id >= maxNodes {
		return nil
	}
	if missing := int(id) + 1 - len(n.Nodes); missing > 0 { //nolint:gosec // below maxNodes
		n.Nodes = slices.Grow(n.Nodes, missing)[:id+1]
		clear(n.Nodes[int(id)+1-missing:]) //nolint:gosec // below maxNodes
	}
	return &n.Nodes[id]
}
