// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package draft

import (
	"maps"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// noDisks are devices that requests only pass through, or that are memory: what is limited at the disks below, or never is.
var noDisks = []string{"loop", "ram", "zram", "dm-", "mapper/", "md", "sr", "fd", "nbd"}

// diskLimit holds a BE pod that disturbs others to what the loops say (View.Dynamic.DiskLimits), on each disk of the node: the lower one of that
// and what is planned already counts.
func (d *Draft) diskLimit() {
	held, is := d.View.Dynamic.DiskLimits[d.Pod.UID]
	onContainers := d.View.Kernel.Cgroup == node.CgroupV1
	if !is || d.Pod.Class() != protocol.QoSBE || onContainers != (d.Target.Level == plan.LevelContainer) {
		return
	}
	var disks []string
	for _, name := range slices.Sorted(maps.Keys(d.View.Kernel.Disks)) {
		device := d.View.Kernel.Disks[name]
		passes := func(prefix string) bool { return strings.HasPrefix(strings.TrimPrefix(name, "/dev/"), prefix) }
		if slices.ContainsFunc(noDisks, passes) || slices.Contains(disks, device) {
			continue
		}
		disks = append(disks, device)
	}
	for _, device := range disks {
		d.lowered(plan.IOReadBPS, device, held.Read, held.Reason)
		d.lowered(plan.IOWriteBPS, device, held.Write, held.Reason)
	}
}

// lowered plans a limit of a disk, in the place of a higher one.
func (d *Draft) lowered(k plan.Knob, device string, most unit.Bytes, reason string) {
	if most <= 0 {
		return
	}
	at := slices.IndexFunc(d.Plan, func(s plan.Setting) bool { return s.Knob == k && s.Key == device && s.Target == d.Target })
	switch {
	case at < 0:
		d.SetKey(protocol.FeatureBlkIO, k, device, plan.Int(most), reason)
	case d.Plan[at].Value.Int() > int64(most):
		d.Plan[at].Value, d.Plan[at].Reason = plan.Int(most), reason
	}
}
