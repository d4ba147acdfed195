// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// suppressInput is what CPU suppression looks at. Usage is the last second's, so that a rise is answered at once.
func suppressInput(f *Facts, a *accounts, held []suppress.Antagonist) suppress.Input {
	in := suppress.Input{
		Now: f.Now, Urgent: f.Urgent, Strategy: *f.View.Strategy.ResourceUsedThresholdWithBE,
		CPUs: suppress.CPUs{
			Topology: f.View.Topology, Reserved: f.View.Claims.Reserved, LSE: f.View.Claims.LSE, LSR: f.View.Claims.LSR,
		},
		Pressure: suppress.Pressure{Some: a.stall}, Antagonists: held,
	}
	if system, exclusive := f.systemQoS(); exclusive {
		in.CPUs.SystemExclusive = system
	}
	node := f.cpu(sample.OfNode())
	in.Usage = suppress.Usage{Node: node, LSHostApps: a.lsApps, BEHostApps: a.beApps, Reserved: f.reserved()}
	if node.OK {
		in.Usage.LSPods, in.Usage.BEPods = unit.Got(a.ls), unit.Got(a.be)
	}
	return in
}

// reserved is what the node keeps for itself: capacity − allocatable as the kubelet says, or the CPUs that the
// configuration keeps from pods.
func (f *Facts) reserved() unit.MilliCPU {
	own := unit.MilliCPU(f.View.Claims.Reserved.Len() * 1000)
	if f.Node == nil {
		return own
	}
	return max(own, f.Node.Capacity.CPU-f.Node.Allocatable.CPU, 0)
}
