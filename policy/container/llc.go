// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/llc"
)

// llc plans the resctrl group of the container: the pod's own where it asks for one, else its class'. A group that
// somebody else already asked for is left alone. Where the hardware counts, the pod gets a monitoring group named by its
// UID.
func (j *job) llc() {
	rdt := &j.View.Kernel.RDT
	if !rdt.Mounted || j.c.Base.RDT != "" || !j.Plans(protocol.FeatureLLC) {
		return
	}
	group, why, ok := llc.GroupOf(j.View, j.Pod)
	if !ok {
		return
	}
	if rdt.L3 || rdt.MB {
		j.Set(protocol.FeatureLLC, plan.RDTClass, plan.Text(group), why)
	}
	if rdt.Mon {
		j.Set(protocol.FeatureLLC, plan.RDTMonGroup, plan.Text(j.Pod.UID), "the hardware counts")
	}
}
