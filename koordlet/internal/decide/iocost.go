// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/policy/iocost"
	"github.com/koord-rt/koord-rt/policy/lent"
)

// IOCost reports whether a step would look at the cost control of disks, which is for those who name one.
func IOCost(s *State, v *node.View) bool { return len(s.IOCost.Held) > 0 || len(costBlocks(v)) > 0 }

// costBlocks are what may be put in force: nothing where block IO does not write. What was ours goes back then.
func costBlocks(v *node.View) []strategy.Block {
	if q := v.Strategy.ClassFor(strategy.ClassRoot).BlkIOQOS; q.Enable != nil && *q.Enable && v.Mode(protocol.FeatureBlkIO) == node.Active {
		return q.Blocks
	}
	return nil
}

// NoCosts says why no cost control of disks is wanted, where that is so.
func NoCosts(v *node.View) string {
	switch {
	case v.Mode(protocol.FeatureBlkIO) != node.Active:
		return "the feature " + protocol.FeatureBlkIO.String() + " is not active on this node"
	case len(costBlocks(v)) > 0:
		return "what cgroupRoot.blkioQOS asks for is ceded to another program"
	}
	return "no cgroupRoot.blkioQOS that is enabled names a disk"
}

// ioCost is the step of the disks' cost control.
func ioCost(f *Facts, s *State, out *Outcome) {
	if !IOCost(s, f.View) {
		s.tick.IOCost = iocost.Output{}
		return
	}
	held := s.IOCost.Held
	s.IOCost, s.tick.IOCost = iocost.Step(s.IOCost, iocost.Input{
		Blocks: costBlocks(f.View), Kernel: &f.View.Kernel, Ceded: f.View.Ceded, Lines: f.CostLines,
	})
	out.Node = append(slices.Clip(out.Node), s.tick.IOCost.Plan...)
	out.Owns = out.Owns || !lent.Same(held, s.IOCost.Held)
}
