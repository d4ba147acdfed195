// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Whole is the weight of a sound node: all of what the formulas give is lent.
const Whole unit.Percent = 100

// quarter is the step by which a node that is sound again gets back what it had lost.
const quarter unit.Percent = 25

// overrun is by how much a node can seem to use more than it has: its figures are differences of counters over time.
const overrun unit.Percent = 5

// HealthStrategy is what the cluster has decided about nodes that are not sound.
type HealthStrategy struct {
	// Stale is the age from which a report counts for less, Degrade that at which it counts for nothing; Stale has no meaning from
	// Degrade on.
	Stale, Degrade unit.Micros
	// Margin is the part of the node by which its figures may contradict each other, Contradicts the time that they must do so
	// without a break: a pod that began a moment ago has an average of its own, and the node's does not know it yet.
	Margin      unit.Percent
	Contradicts unit.Micros
	// Contradiction, Memory, Disk and PIDs are the weights of a node whose report contradicts itself, or that is short of something.
	Contradiction, Memory, Disk, PIDs unit.Percent
	// Evictions of an hour are tolerated.
	Evictions int64
	// Recovery is the time after which a sound node gets a quarter back; at least a second.
	Recovery unit.Micros
}

// Signs are what is known of a node's health.
type Signs struct {
	Now unit.Micros
	// Report is required, Seen what is known of it here.
	Report *Report
	Seen   Sighting
	// Contradicts is for how long the reports have contradicted themselves, without a break; not Set where the last one does not.
	Contradicts unit.Opt
	// Memory, Disk and PIDs: the kubelet says that it is short of them.
	Memory, Disk, PIDs bool
}

// Weighing is a node's weight. The zero value is no weighing: a sound node's is [Sound].
type Weighing struct {
	Weight unit.Percent
	// Reasons, of protocol.Unsound*, are why the weight is not Whole; of a node that is recovering why it was not. None when it is.
	Reasons []string
	// Since is when the weight was last changed.
	Since unit.Micros
}

// Sound is the weighing of a node about which there is nothing to say.
func Sound() Weighing { return Weighing{Weight: Whole} }

// Weigh is the weight that a node has now, by what it was before and what speaks against it:
//
//	target = the least of
//	  report     75, 50, 25 % in the thirds of the time from Stale to Degrade
//	  figures    Contradiction, when they have contradicted each other for Contradicts
//	  pressure   Memory, Disk, PIDs
//	  evictions  tolerated / evicted of the last hour, down to whole quarters, at least 25 %
//	a target below the weight holds at once; a weight below its target grows by a quarter per Recovery
//
// So a node that gets worse is heard at once, and one that goes to and fro between good and bad is believed only after a while:
// between two steps up lies Recovery, and no state lasts without a reason. again is when to look though nothing has happened, 0 for
// never.
//
// Example, Recovery 5 min, Memory 0 %: MemoryPressure at 12:00 gives 0 %; it ends at 12:07, and the node gets 25 % then (the last change
// is longer ago than 5 min), 50 % at 12:12, 75 % at 12:17, all at 12:22. Pressure again at 12:13 gives 0 %.
func (s *HealthStrategy) Weigh(before Weighing, in Signs) (after Weighing, again unit.Micros) {
	target, reasons := s.target(in)
	after = before
	if after.Since > in.Now { // of a clock that was ahead, or somebody's joke
		after.Since = in.Now
	}
	switch {
	case target < before.Weight:
		after = Weighing{Weight: target, Since: in.Now}
	case target > before.Weight && in.Now-after.Since >= s.Recovery:
		after.Weight, after.Since = min(before.Weight+quarter, target), in.Now
	}
	if after.Weight >= Whole {
		after = Sound()
	} else if len(reasons) > 0 {
		after.Reasons = reasons
	}
	if target > after.Weight {
		again = after.Since + s.Recovery - in.Now
	}
	if next := s.nextAge(in); next > 0 && (again == 0 || next < again) {
		again = next
	}
	return after, again
}

// target is the weight by what is known now, and why it is not Whole, in order.
func (s *HealthStrategy) target(in Signs) (weight unit.Percent, reasons []string) {
	weight = Whole
	for _, sign := range []struct {
		weight unit.Percent
		reason string
	}{
		{s.ofAge(in), protocol.UnsoundStale},
		{when(in.Contradicts.Set && unit.Micros(in.Contradicts.V) >= s.Contradicts, s.Contradiction), protocol.UnsoundContradiction},
		{when(in.Memory, s.Memory), protocol.UnsoundMemory},
		{when(in.Disk, s.Disk), protocol.UnsoundDisk},
		{when(in.PIDs, s.PIDs), protocol.UnsoundPIDs},
		{s.ofEvictions(in.Report.Evictions), protocol.UnsoundEvictions},
	} {
		if sign.weight < Whole {
			weight = min(weight, sign.weight)
			reasons = append(reasons, sign.reason)
		}
	}
	return weight, reasons
}

func when(holds bool, weight unit.Percent) unit.Percent {
	if holds {
		return weight
	}
	return Whole
}

// third is a third of the time in which a report loses its weight, 0 where it does so all at once.
func (s *HealthStrategy) third() unit.Micros { return max(s.Degrade-s.Stale, 0) / 3 }

// ofAge is a report's weight. One that is ahead of the time here is as good as one that is as much behind it, and none is younger than it has
// been known here.
func (s *HealthStrategy) ofAge(in Signs) unit.Percent {
	age := max(in.Now-in.Report.At, in.Report.At-in.Now, in.Seen.had())
	third := s.third()
	if third == 0 || age < s.Stale {
		return Whole
	}
	return Whole - quarter*unit.Percent(min(1+(age-s.Stale)/third, 3))
}

// nextAge is the time until the report is a step older.
func (s *HealthStrategy) nextAge(in Signs) unit.Micros {
	age, third := in.Now-in.Report.At, s.third()
	if in.Seen.For.Set {
		age = max(age, in.Seen.had())
	}
	if third == 0 || age < 0 {
		return 0
	}
	for _, step := range []unit.Micros{s.Stale, s.Stale + third, s.Stale + 2*third} {
		if age < step {
			return step - age
		}
	}
	return 0
}

// ofEvictions lets a node lend about so much that it evicts what is tolerated.
//
// Example, 3 tolerated: 3 → 100 %, 4 → 75 %, 6 → 50 %, 20 → 25 %.
func (s *HealthStrategy) ofEvictions(n int64) unit.Percent {
	if n <= s.Evictions {
		return Whole
	}
	return max(unit.Percent(100*s.Evictions/n)/quarter*quarter, quarter)
}

// Contradiction says what of a report cannot be, "" when all can: the node uses more than it has, or its parts use more than the whole.
// A report without the node's use, and a node that tells no capacity, contradict nothing.
//
// Example, 100 CPUs, margin 20 %: pods, host applications and system use 71, the node 50: it cannot be. 69 and 50: they can.
func Contradiction(n *Node, r *Report, margin unit.Percent) string {
	if r == nil || !r.NodeOK {
		return ""
	}
	parts := r.System
	for i := range r.Pods {
		parts = parts.Plus(r.Pods[i].Used)
	}
	for i := range r.Hosts {
		parts = parts.Plus(r.Hosts[i].Used)
	}
	most := n.Capacity.Plus(n.Capacity.Percent(overrun, overrun))
	whole := r.Node.Plus(n.Capacity.Percent(margin, margin))
	switch {
	case n.Capacity.CPU > 0 && r.Node.CPU > most.CPU:
		return "the node reports a use of " + figure.CPUs(r.Node.CPU) + " and has " + figure.CPUs(n.Capacity.CPU)
	case n.Capacity.Memory > 0 && r.Node.Memory > most.Memory:
		return "the node reports a use of " + figure.Bytes(r.Node.Memory) + " and has " + figure.Bytes(n.Capacity.Memory)
	case n.Capacity.CPU > 0 && parts.CPU > whole.CPU:
		return "pods, host applications and system report a use of " + figure.CPUs(parts.CPU) + ", the node one of " + figure.CPUs(r.Node.CPU)
	case n.Capacity.Memory > 0 && parts.Memory > whole.Memory:
		return "pods, host applications and system report a use of " + figure.Bytes(parts.Memory) + ", the node one of " + figure.Bytes(r.Node.Memory)
	}
	return ""
}
