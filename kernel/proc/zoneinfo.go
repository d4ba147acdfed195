// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"bytes"
	"os"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// ZoneInfo is what CPUs keep of the memory zones.
type ZoneInfo struct {
	// PerCPU is free memory on the CPUs' own lists, all zones together. MemFree and MemAvailable of /proc/meminfo do not have
	// it, though it is there for whoever allocates next. Since 6.7 the lists grow with what is freed, up to an eighth of the
	// zone, and shrink by a few MiB a second.
	PerCPU unit.Bytes
	// Nodes are its parts by NUMA node.
	Nodes []unit.Bytes
}

// Node is the part of a NUMA node.
func (z *ZoneInfo) Node(id int) unit.Bytes {
	if id < 0 || id >= len(z.Nodes) {
		return 0
	}
	return z.Nodes[id]
}

const (
	// maxPages bounds one list, and all together; it is more memory than there is.
	maxPages = 1 << 40
	// maxNodes is the kernel's MAX_NUMNODES (include/linux/numa.h, CONFIG_NODES_SHIFT 10).
	maxNodes = 1 << 10
)

// ZoneInfoFile keeps /proc/zoneinfo open. Not for concurrent use. It is long on machines with many CPUs: not for every tick.
func (fs FS) ZoneInfoFile() (*root.File[ZoneInfo], error) {
	return root.NewFile(string(fs), "zoneinfo", parseZoneInfo)
}

// ZoneInfo reads /proc/zoneinfo once.
func (fs FS) ZoneInfo() (ZoneInfo, error) {
	f, err := fs.ZoneInfoFile()
	if err != nil {
		return ZoneInfo{}, err
	}
	defer f.Close()
	b := root.Get()
	defer b.Put()
	var z ZoneInfo
	err = f.Read(b, &z)
	return z, err
}

// parseZoneInfo reads /proc/zoneinfo, a block for each zone with a list for each CPU:
//
//	Node 0, zone   Normal
//	  pages free     1932077
//	  pagesets
//	    cpu: 0
//	              count:    9766
//	              high:     10080
//
// mm/vmstat.c, zoneinfo_show_print. The room of z.Nodes is used again; on an error z is empty.
func parseZoneInfo(b []byte, z *ZoneInfo) error {
	*z = ZoneInfo{Nodes: z.Nodes[:0]}
	if !z.fill(b) {
		*z = ZoneInfo{Nodes: z.Nodes[:0]}
		return scan.ErrFormat
	}
	return nil
}

// fill adds the lists up in an empty z.
func (z *ZoneInfo) fill(b []byte) (ok bool) {
	page, node, seen := unit.Bytes(os.Getpagesize()), -1, false
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		key, rest := scan.Field(line)
		switch string(key) {
		case "Node":
			id, _ := scan.Field(rest)
			n, ok := scan.Uint(bytes.TrimSuffix(id, []byte(",")))
			if !ok || n >= maxNodes {
				return false
			}
			for node = int(n); len(z.Nodes) <= node; {
				z.Nodes = append(z.Nodes, 0)
			}
		case "count:":
			n, _, ok := scan.UintField(rest)
			if !ok || node < 0 || n > maxPages || z.PerCPU > maxPages*page {
				return false
			}
			z.PerCPU += unit.Bytes(n) * page
			z.Nodes[node] += unit.Bytes(n) * page
			seen = true
		}
	}
	return seen
}
