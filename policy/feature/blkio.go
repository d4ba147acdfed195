// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package feature

import (
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

func blkio(r *report) {
	k := &r.v.Kernel
	if !k.Has(plan.IOReadBPS) && !k.Has(plan.IOWeight) && !k.Has(plan.IOLatency) {
		r.need(plan.IOReadBPS)
		return
	}
	r.want(plan.IOReadBPS)
	weighs := r.want(plan.IOWeight) && k.Cgroup == node.CgroupV2 && k.Knobs[plan.IOWeight].Degraded == "" // else that is said already
	r.want(plan.IOLatency)
	if k.Cgroup == node.CgroupV1 {
		r.late(plan.IOReadBPS, plan.IOWriteBPS, plan.IOReadIOPS, plan.IOWriteIOPS)
		r.limited = append(r.limited, "the throttle of cgroup v1 does not look at ancestors: each container of a pod gets the pod's limits")
	}
	for _, class := range [...]string{"LSR", "LS", "BE", "SYSTEM"} {
		for _, b := range r.blocks(class) {
			if unused := b.IOCfg.Unused(); len(unused) > 0 {
				r.limited = append(r.limited, "blkioQOS of "+class+", "+strconv.Quote(b.Name)+": "+strings.Join(unused, ", ")+" set nothing: they are the disk's, under cgroupRoot.blkioQOS")
			}
			if weighs && b.IOCfg.IOWeightPercent != nil {
				r.weightOn(class, b.Name)
			}
		}
	}
	if len(r.blocks(strategy.ClassRoot)) > 0 {
		r.cost()
	}
	r.notes = append(r.notes, "blocks of type volumegroup or podvolume are not resolved: name the disk")
}

// blocks are what a class says of disks.
func (r *report) blocks(class string) []strategy.Block {
	if q := r.v.Strategy.ClassFor(class).BlkIOQOS; q.Enable != nil && *q.Enable {
		return q.Blocks
	}
	return nil
}

// weightOn tells of a weight that the kernel keeps and nobody reads.
func (r *report) weightOn(class, name string) {
	number, known := r.v.Kernel.Disks[name]
	if !known {
		return
	}
	const written = ": io.weight is written, but "
	of := "blkioQOS of " + class + ", " + strconv.Quote(name) + written
	switch r.v.Kernel.WeightedBy[number] {
	case node.ByIOCost:
	case node.ByBFQ:
		r.limited = append(r.limited, of+"the disk is under BFQ, which reads io.bfq.weight, and has no iocost")
	default:
		r.limited = append(r.limited, of+"the disk has neither iocost nor BFQ")
	}
}

// cost is the disks' cost control, the node agent's work.
func (r *report) cost() {
	if r.want(plan.IOCostQoS) && r.want(plan.IOCostModel) && !r.v.Dynamic.Known {
		r.limited = append(r.limited, "blkioQOS of "+strategy.ClassRoot+" is done by the node agent, which tells nothing here")
	}
}
