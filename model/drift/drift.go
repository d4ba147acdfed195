// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package drift says who may have written over a value of ours, as far as values tell: nobody signs a cgroup file.
//
// Inputs are what was found and what each of those who write cgroups is known to hold for the same file; the output is
// everybody whose value it is. kernel/apply finds and compares, engine asks and records, koordctl prints. It imports
// model/plan and the standard library only.
package drift

import (
	"strings"

	"github.com/koord-rt/koord-rt/model/plan"
)

// Source is a set of those who may have written a value. The empty set is Someone.
type Source uint8

// The sources.
const (
	// Runtime: it is what the container's specification asks for, so an update of the kubelet's by way of the runtime.
	Runtime Source = 1 << iota
	// Kubelet: it is what the kubelet gives the pod's own cgroup.
	Kubelet
	// Systemd: it is what systemd holds for the unit, and writes again at a daemon-reload.
	Systemd

	// Someone: nobody who is known would have written it; a human, or another agent.
	Someone Source = 0
	// NumSources is how many sets there are.
	NumSources = int(Systemd) << 1
)

var names = [...]string{"runtime", "kubelet", "systemd"}

// String is "someone", "runtime", or "runtime-or-systemd" where the value tells no more; a label of metrics too.
func (s Source) String() string {
	var parts []string
	for i, name := range names {
		if s&(1<<i) != 0 {
			parts = append(parts, name)
		}
	}
	if len(parts) == 0 {
		return "someone"
	}
	return strings.Join(parts, "-or-")
}

// Claim is a value that one of the sources holds for a file.
type Claim struct {
	By    Source
	Value plan.Value
}

// Attribute is everybody whose value was found. same compares a claim with it as the kernel would hold both: a weight has
// fewer steps than shares, memory has pages.
func Attribute(found plan.Value, claims []Claim, same func(claimed, found plan.Value) bool) Source {
	out := Someone
	for i := range claims {
		if same(claims[i].Value, found) {
			out |= claims[i].By
		}
	}
	return out
}
