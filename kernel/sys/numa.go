// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"math"
	"strconv"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// NodeMemory is the memory of one NUMA node.
type NodeMemory struct {
	Total, Free, ActiveFile, InactiveFile, SReclaimable unit.Bytes
}

// Used = Total − (Free + Active(file) + Inactive(file) + SReclaimable): what cannot be had without swapping. The kernel has no
// MemAvailable by node.
func (m *NodeMemory) Used() unit.Bytes {
	return max(m.Total-m.Free-m.ActiveFile-m.InactiveFile-m.SReclaimable, 0)
}

// UsedWithPageCache = Total − Free.
func (m *NodeMemory) UsedWithPageCache() unit.Bytes { return max(m.Total-m.Free, 0) }

// NodeMemoryFile keeps devices/system/node/nodeN/meminfo open. Not for concurrent use.
func (fs FS) NodeMemoryFile(node int) (*root.File[NodeMemory], error) {
	return root.NewFile(fs.Path(nodeDir, "node"+strconv.Itoa(node)), "meminfo", parseNodeMeminfo)
}

// parseNodeMeminfo reads devices/system/node/nodeN/meminfo, KiB under the name of kB:
//
//	Node 0 MemTotal:        6908120 kB
//	Node 0 MemFree:         4850584 kB
//	Node 0 Active(file):     751700 kB
//
// Documentation/ABI/stable/sysfs-devices-node. On an error m is as before.
func parseNodeMeminfo(b []byte, m *NodeMemory) error {
	var out NodeMemory
	seen := false
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		_, rest := scan.Field(line) // Node
		_, rest = scan.Field(rest)  // 0
		key, rest := scan.Field(rest)
		var field *unit.Bytes
		switch string(key) {
		case "MemTotal:":
			field, seen = &out.Total, true
		case "MemFree:":
			field = &out.Free
		case "Active(file):":
			field = &out.ActiveFile
		case "Inactive(file):":
			field = &out.InactiveFile
		case "SReclaimable:":
			field = &out.SReclaimable
		default:
			continue
		}
		kib, _, ok := scan.UintField(rest)
		if !ok || kib > math.MaxInt64/1024/8 {
			return scan.ErrFormat // and the sum of five fits
		}
		*field = unit.Bytes(kib * 1024) //nolint:gosec // bounded above
	}
	if !seen {
		return scan.ErrFormat
	}
	*m = out
	return nil
}
