// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// rdma plans the verbs nodes of the container's RDMA devices, and rdma_cm. A virtual function is found by its PCI
// address, a whole device by its minor. Containers that request none get none; requests are not divided, because
// functions of one pod are used together.
func (j *job) rdma(allocations []protocol.DeviceAllocation) {
	if pt := j.partOf(rdmaNames); !pt.asks {
		return
	}
	found := false
	for i := range allocations {
		a := &allocations[i]
		if len(a.VFs) == 0 {
			n := j.node(protocol.DeviceRDMA, a)
			if n == nil {
				j.Problem(protocol.AnnotationDeviceAllocated, "this node has no RDMA device with minor "+strconv.Itoa(int(a.Minor)))
				continue
			}
			j.addNode(n, whyAllocated)
			found = true
			continue
		}
		for k := range a.VFs {
			if !j.rdmaByBus(a.VFs[k].BusID) {
				j.Problem(protocol.AnnotationDeviceAllocated, "this node has no RDMA device at "+a.VFs[k].BusID)
				continue
			}
			found = true
		}
	}
	if found {
		j.addControls(protocol.DeviceRDMA)
	}
}

// rdmaByBus plans all nodes of a PCI function.
func (j *job) rdmaByBus(bus string) bool {
	found := false
	nodes := j.View.Kernel.Devices
	for i := range nodes {
		if n := &nodes[i]; n.Type == protocol.DeviceRDMA && !n.Control && bus != "" && strings.EqualFold(n.BusID, bus) {
			j.addNode(n, whyAllocated)
			found = true
		}
	}
	return found
}
