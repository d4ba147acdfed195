// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"strconv"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// NodeMemory is the memory of one NUMA node.
type NodeMemory struct {
	Total, Free, ActiveFile, InactiveFile, SReclaimable unit.Bytes
}

// Used = Total − (Free + Active(file) + Inactive(file) + SReclaimable) − what is free on lists of the CPUs: what cannot be had
// without swapping. The kernel has no MemAvailable by node.
func (m *NodeMemory) Used(lists unit.Bytes) unit.Bytes {
	return max(m.Total-m.Free-m.ActiveFile-m.InactiveFile-m.SReclaimable-lists, 0)
}

// UsedWithPageCache = Total − Free − what is free on lists of the CPUs.
func (m *NodeMemory) UsedWithPageCache(lists unit.Bytes) unit.Bytes {
	return max(m.Total-m.Free-lists, 0)
}

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
	if err := scan.Amounts(b, 2, []scan.Amount[unit.Bytes]{
		{Key: "MemTotal:", To: &out.Total}, {Key: "MemFree:", To: &out.Free}, {Key: "Active(file):", To: &out.ActiveFile},
		{Key: "Inactive(file):", To: &out.InactiveFile}, {Key: "SReclaimable:", To: &out.SReclaimable},
	}); err != nil {
		return err
	}
	*m = out
	return nil
}
