// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plan

// Claim is what exactly one owner may set: a knob of a target, or knobs that only make sense together.
type Claim struct {
	Target Target
	Knob   Knob
	Key    string
}

// ClaimOf puts quota, period and burst in one claim, and CPUs and memory nodes in another: a burst of one owner above a
// quota of another's is refused by the kernel, and CPUs of one with the memory of the other would be on two NUMA nodes.
func ClaimOf(s *Setting) Claim {
	switch s.Knob {
	case CPUPeriod, CPUBurst:
		return Claim{s.Target, CPUQuota, ""}
	case CPUSetMems:
		return Claim{s.Target, CPUSetCPUs, ""}
	}
	return Claim{s.Target, s.Knob, s.Key}
}
