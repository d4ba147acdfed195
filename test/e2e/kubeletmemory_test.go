// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"slices"
)

// The documents' memory QoS (M6b).
var (
	lsrMemory = map[string]any{
		"enable": true, "minLimitPercent": 100, "lowLimitPercent": 100, "throttlingPercent": 120, "wmarkRatio": 95, "wmarkMinAdj": -25,
	}
	beMemory = map[string]any{
		"enable": true, "minLimitPercent": 0, "lowLimitPercent": 0, "throttlingPercent": 80, "wmarkRatio": 75, "wmarkMinAdj": 50,
	}
)

// What it gives to 64 MiB: F1 of the documents at a 128th for LSR and at a 32nd for BE, in whole pages. A Guaranteed pod stands in the cgroup
// of all pods, which protects as much; above a container that protects all that it may have its pod has room. Free is without.
var (
	lsrKeeps = []string{
		"memory.min=67108864", "memory.low=67108864", "memory.high=80527360", "pod memory.min=67108864", "pod memory.low=67108864",
		"above memory.min=67108864", "above memory.low=67108864", "pod memory.max=100663296",
	}
	lsrFree = []string{
		"memory.min=0", "memory.low=0", "memory.high=max", "pod memory.min=0", "pod memory.low=0", "above memory.min=0", "above memory.low=0",
		"pod memory.max=67108864",
	}
	beYields = []string{"memory.min=0", "memory.low=0", "memory.high=53686272"}
	beFree   = []string{"memory.min=0", "memory.low=0", "memory.high=max"}
)

// memory: changes of memory QoS are in force in the containers that run, at every level.
func (n *served) memory() {
	n.t.Helper()
	class := func(field string, value int) map[string]any {
		return map[string]any{"memoryQOS": map[string]any{field: value}}
	}
	n.put(map[string]any{"resourceQOSStrategy": map[string]any{
		"lsrClass": class("minLimitPercent", 50), "beClass": class("throttlingPercent", 50),
	}})
	n.have(n.ready("lsr"), slices.Concat(lsrHas, []string{
		"memory.min=33554432", "memory.low=67108864", "memory.high=80527360", "pod memory.min=33554432", "pod memory.low=67108864",
		"above memory.min=33554432", "above memory.low=67108864", "pod memory.max=67108864",
	})...)
	n.have(n.ready("be"), slices.Concat(beHas, []string{"memory.high=33554432"})...)
	n.have(n.ready("idle"), slices.Concat(idleHas, []string{"memory.high=33554432"})...)
}
