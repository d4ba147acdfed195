// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroups

// ahead is what a CPU can have beyond the quota each time that it is filled, in seconds: of one that it had before a slice of 5 ms
// (https://docs.kernel.org/scheduler/sched-bwc.html), and until the next tick, 10 ms at most, what it overdraws and what is not counted yet.
// The kernel takes back what was overdrawn, unless a quota is written meanwhile.
const ahead = 0.025

// FilledOnce is the CPU time, in seconds, that a group may use of a CPU quota as it is at a first look at it, at the most:
//
//	filled = quota + CPUs × ahead
//
// quota is the CPU time that it has in a period, in seconds (+Inf without one), CPUs are those on which the group computes, and ahead is 25 ms.
// With 20 ms and 2 CPUs it is 70 ms.
func FilledOnce(quota float64, cpus int) float64 { return quota + float64(cpus)*ahead }

// Quota is what two looks tell of a group's CPU quota, which the kernel fills once a period, and when it is written.
type Quota struct {
	// Before and Now are the quota at the two looks: CPU time in a period, in seconds; +Inf without one.
	Before, Now float64
	// Periods is how many there were, as the kernel counts (nr_periods of cpu.stat) or as time / period.
	Periods float64
	// Missed is how often the quota may have been written without either look showing it.
	Missed int
	// Growth is the most by which each of these writes can have raised the quota, in seconds as the quota.
	Growth float64
	// CPUs are those on which the group computes.
	CPUs int
}

// Filled is the CPU time, in seconds, that the kernel has filled the quota with between the looks, at the most. FilledOnce of the first look, and this
// of each two looks since, bound what the group has used from the first on:
//
//	filled = quota × (periods + writes) + writes × CPUs × ahead
//	quota  = max(before, now) + missed × growth
//	writes = missed, and one more if now differs from before
//
// With 120 ms before and 20 ms now, 5 periods, none missed and 2 CPUs it is 720 ms + 50 ms.
func (q Quota) Filled() float64 {
	quota, writes := max(q.Before, q.Now)+float64(q.Missed)*q.Growth, q.Missed
	if q.Now != q.Before {
		writes++
	}
	return quota*(q.Periods+float64(writes)) + float64(writes*q.CPUs)*ahead
}
