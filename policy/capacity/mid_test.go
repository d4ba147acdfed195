// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// TestMid repeats Koordinator's worked examples (pkg/slo-controller/noderesource/plugins/midresource/plugin_test.go): 100 CPUs
// and 210 GB, of which the kubelet keeps 10 GB.
func TestMid(t *testing.T) {
	t.Parallel()
	pods := []capacity.Pod{
		{Name: "test/a", Class: protocol.PriorityProd, QoS: protocol.QoSLS, Request: of(20, 40)},
		{Name: "test/b", Class: protocol.PriorityBatch, QoS: protocol.QoSBE, Request: of(15, 30)},
	}
	plain := func() capacity.MidStrategy { return capacity.MidStrategy{CPUThreshold: 100, MemoryThreshold: 100} }
	bounded := capacity.MidStrategy{CPUThreshold: 10, MemoryThreshold: 20, Unallocated: 10}
	static := func(percent unit.Percent) capacity.MidStrategy {
		s := bounded
		s.Static, s.StaticCPU, s.StaticMemory = true, percent, percent
		return s
	}
	withUnallocated := plain()
	withUnallocated.Unallocated = 10
	mid := append(pods[:2:2], capacity.Pod{Name: "test/m", Class: protocol.PriorityMid, Request: of(40, 40)})
	for _, tc := range []struct {
		name     string
		strategy capacity.MidStrategy
		pods     []capacity.Pod
		report   capacity.Report
		want     capacity.Amounts
	}{
		{"reclaimable", plain(), pods, capacity.Report{Node: of(20, 45), NodeOK: true, ProdFree: of(10, 15)}, of(10, 15)},
		// min(min(15, 70) + 80 × 10 %, 10), min(min(30, 160) + 160 × 10 %, 42).
		{"bounded", bounded, pods, capacity.Report{Node: of(30, 50), NodeOK: true, ProdFree: of(15, 30)}, of(10, 42)},
		{"nothing predicted", plain(), pods, capacity.Report{Node: of(30, 50), NodeOK: true}, of(0, 0)},
		{"static", static(10), pods, capacity.Report{}, of(10, 21)},
		{"static, bounded", static(100), pods, capacity.Report{}, of(10, 42)},
		{"unallocated", withUnallocated, pods, capacity.Report{Node: of(30, 50), NodeOK: true, ProdFree: of(15, 30)}, of(23, 46)},
		{"a mid pod takes nothing of it", withUnallocated, mid, capacity.Report{Node: of(30, 50), NodeOK: true, ProdFree: of(15, 30)}, of(23, 46)},
		// The system uses 10 and its application 5; max(15, 0) and max(25 GB, 10 GB).
		{"system and production's host application", withUnallocated, pods, capacity.Report{
			Node: of(30, 50), NodeOK: true, ProdFree: of(15, 30), System: of(10, 20),
			Hosts: []capacity.Host{{Class: protocol.PriorityProd, Used: of(5, 5)}, {Class: protocol.PriorityMid, Used: of(9, 9)}},
		}, of(21.5, 44.5)},
		{"less is free than is reclaimable", plain(), pods, capacity.Report{Node: of(95, 205), NodeOK: true, ProdFree: of(10, 15)}, of(5, 5)},
		{"the node's usage is not known", withUnallocated, pods, capacity.Report{ProdFree: of(10, 15)}, of(8, 16)},
	} {
		n := capacity.Node{Capacity: of(100, 210), Kubelet: of(0, 10)}
		if got := tc.strategy.Mid(&n, tc.pods, &tc.report); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}
