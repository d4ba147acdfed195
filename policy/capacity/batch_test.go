// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// of is CPUs and GB.
func of(cpus, gb float64) capacity.Amounts {
	return capacity.Amounts{CPU: unit.MilliCPU(cpus * 1000), Memory: unit.Bytes(gb * 1e9)}
}

// The node, pods and report that Koordinator's own tests of batch resources go by: 100 CPUs and 120 GB; a prod pod, an
// unlabelled pod that is pending, and a best-effort pod.
func plainNode() capacity.Node { return capacity.Node{Capacity: of(100, 120)} }

func plainPods() []capacity.Pod {
	return []capacity.Pod{
		{Name: "test/a", Class: protocol.PriorityProd, QoS: protocol.QoSLS, Request: of(20, 20)},
		{Name: "test/b", Class: protocol.PriorityBatch, QoS: protocol.QoSBE},
		{Name: "test/c", Class: protocol.PriorityProd, QoS: protocol.QoSLSR, Request: of(20, 40)},
	}
}

func plainReport() capacity.Report {
	return capacity.Report{
		Node: of(50, 55), NodeOK: true, System: of(7, 12),
		Pods: []capacity.Usage{
			{Name: "test/a", Class: protocol.PriorityProd, Used: of(11, 11)},
			{Name: "test/b", Class: protocol.PriorityBatch, Used: of(10, 10)},
			{Name: "test/c", Class: protocol.PriorityProd, Used: of(22, 22)},
		},
	}
}

// classes are pods of every class with their report, as in Koordinator's tests.
func classes() ([]capacity.Pod, capacity.Report) {
	pods := []capacity.Pod{
		{Name: "test/prod", Class: protocol.PriorityProd, QoS: protocol.QoSLS, Request: of(10, 10)},
		{Name: "test/prod1", Class: protocol.PriorityProd, QoS: protocol.QoSLSR, Request: of(10, 10)},
		{Name: "test/batch", Class: protocol.PriorityBatch, QoS: protocol.QoSBE, Request: of(10, 10)},
		{Name: "test/mid", Class: protocol.PriorityMid, QoS: protocol.QoSBE, Request: of(20, 40)},
	}
	report := capacity.Report{
		Node: of(50, 55), NodeOK: true, System: of(7, 12),
		Pods: []capacity.Usage{
			{Name: "test/prod", Class: protocol.PriorityProd, Used: of(5, 5)},
			{Name: "test/prod1", Class: protocol.PriorityProd, Used: of(6, 6)},
			{Name: "test/batch", Class: protocol.PriorityBatch, Used: of(10, 10)},
			{Name: "test/mid", Class: protocol.PriorityMid, Used: of(22, 22)},
		},
	}
	return pods, report
}

func strategy(cpu, memory int64) capacity.BatchStrategy {
	return capacity.BatchStrategy{CPUReclaim: unit.Percent(cpu), MemoryReclaim: unit.Percent(memory)}
}

// TestBatch repeats Koordinator's worked examples (pkg/slo-controller/noderesource/plugins/batchresource/plugin_test.go), and
// adds what is counted here and not there.
func TestBatch(t *testing.T) {
	t.Parallel()
	type change = func(*capacity.Node, *[]capacity.Pod, *capacity.Report, *capacity.BatchStrategy)
	byPolicy := func(cpu, memory capacity.Calculation, cpuReclaim, memoryReclaim int64) change {
		return func(_ *capacity.Node, _ *[]capacity.Pod, _ *capacity.Report, s *capacity.BatchStrategy) {
			*s = strategy(cpuReclaim, memoryReclaim)
			s.CPU, s.Memory = cpu, memory
		}
	}
	reserved := func(kubelet, annotation capacity.Amounts) change {
		return func(n *capacity.Node, _ *[]capacity.Pod, _ *capacity.Report, _ *capacity.BatchStrategy) {
			n.Kubelet, n.Annotation = kubelet, annotation
		}
	}
	bounds := func(cpu, memory unit.Opt) change {
		return func(_ *capacity.Node, _ *[]capacity.Pod, _ *capacity.Report, s *capacity.BatchStrategy) {
			s.CPUThreshold, s.MemoryThreshold = cpu, memory
		}
	}
	host := func(class protocol.PriorityClass) change {
		return func(_ *capacity.Node, _ *[]capacity.Pod, r *capacity.Report, _ *capacity.BatchStrategy) {
			r.System, r.Hosts = of(4, 6), []capacity.Host{{Class: class, Used: of(3, 6)}}
		}
	}
	every := func(n *capacity.Node, p *[]capacity.Pod, r *capacity.Report, _ *capacity.BatchStrategy) {
		*p, *r = classes()
	}
	unmeasured := func(_ *capacity.Node, _ *[]capacity.Pod, r *capacity.Report, _ *capacity.BatchStrategy) {
		r.Pods = r.Pods[:2]
	}
	for _, tc := range []struct {
		name    string
		changes []change
		want    capacity.Amounts
	}{
		{"by usage", nil, of(25, 33)},
		{"reservation below system usage", []change{reserved(of(0, 0), of(2, 5))}, of(25, 33)},
		{"reservation above system usage", []change{reserved(of(0, 0), of(20, 20))}, of(12, 25)},
		{"kubelet keeps most", []change{reserved(of(10, 20), of(2, 5))}, of(22, 25)},
		{"memory by request", []change{byPolicy("", capacity.ByRequest, 70, 80)}, of(30, 36)},
		{"memory by request, reserved", []change{byPolicy("", capacity.ByRequest, 70, 80), reserved(of(0, 0), of(0, 5))}, of(30, 31)},
		{"memory by request, kubelet keeps most", []change{byPolicy("", capacity.ByRequest, 70, 80), reserved(of(10, 20), of(2, 5))}, of(27, 16)},
		{"every class", []change{every}, of(25, 33)},
		{"an LSE pod lends no CPU", []change{every, func(_ *capacity.Node, p *[]capacity.Pod, _ *capacity.Report, _ *capacity.BatchStrategy) {
			(*p)[0].QoS = protocol.QoSLSE
		}}, of(20, 33)},
		{"CPU by the larger, memory by request", []change{byPolicy(capacity.ByMaxUsageRequest, capacity.ByRequest, 70, 80)}, of(21, 36)},
		{"more than the node", []change{byPolicy(capacity.ByMaxUsageRequest, capacity.ByRequest, 150, 120)}, of(101, 84)},
		{"bounded", []change{byPolicy(capacity.ByMaxUsageRequest, capacity.ByRequest, 150, 120), bounds(unit.Some(100), unit.Some(100))}, of(100, 84)},
		{"a bound of nothing", []change{bounds(unit.Some(0), unit.Opt{})}, of(0, 33)},
		{"memory by the larger", []change{byPolicy(capacity.ByUsage, capacity.ByMaxUsageRequest, 150, 120)}, of(110, 72)},
		{"memory by the larger, bounded", []change{byPolicy(capacity.ByUsage, capacity.ByMaxUsageRequest, 150, 120), bounds(unit.Some(100), unit.Some(50))}, of(100, 60)},
		{"production's host application", []change{host(protocol.PriorityProd)}, of(25, 33)},
		{"mid's host application", []change{host(protocol.PriorityMid)}, of(25, 33)},
		{"batch's host application", []change{host(protocol.PriorityBatch)}, of(28, 39)},
		{"a host application without a class", []change{host(protocol.PriorityNone)}, of(25, 33)},
		{"a pod that is gone", []change{every, func(_ *capacity.Node, p *[]capacity.Pod, _ *capacity.Report, _ *capacity.BatchStrategy) {
			*p = (*p)[1:]
		}}, of(25, 33)},
		{"a batch pod that is gone", []change{every, func(_ *capacity.Node, p *[]capacity.Pod, _ *capacity.Report, _ *capacity.BatchStrategy) {
			*p = append((*p)[:2:2], (*p)[3])
		}}, of(25, 33)},
		// 65 − 7 − 11 − 20 and 78 − 12 − 11 − 40.
		{"a pod without a report, by usage", []change{unmeasured}, of(27, 15)},
		// 70 − 7 − 20 − 20 and 96 − 12 − 20 − 40: upstream forgets the 20 and the 40 (§9.1, 1).
		{"a pod without a report, by the larger", []change{unmeasured, byPolicy(capacity.ByMaxUsageRequest, capacity.ByMaxUsageRequest, 70, 80)}, of(23, 24)},
		// 96 − 10 − 10 − 40: upstream sees no memory request in mid-memory (§9.1, 2).
		{"a mid pod's request", []change{every, byPolicy("", capacity.ByRequest, 65, 80)}, of(25, 36)},
		{"less than nothing", []change{byPolicy("", "", 30, 30)}, of(0, 0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n, pods, report, s := plainNode(), plainPods(), plainReport(), strategy(65, 65)
			for _, c := range tc.changes {
				c(&n, &pods, &report, &s)
			}
			if got := s.Batch(&n, pods, &report); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestBatchZones(t *testing.T) {
	t.Parallel()
	zones := []capacity.Zone{{ID: 0, Capacity: of(50, 62)}, {ID: 1, Capacity: of(50, 58)}}
	for _, tc := range []struct {
		name   string
		change func(*capacity.Node, []capacity.Pod, *capacity.Report, *capacity.BatchStrategy) []capacity.Pod
		want   []capacity.Amounts
	}{
		{"a pod in one zone", func(_ *capacity.Node, p []capacity.Pod, _ *capacity.Report, _ *capacity.BatchStrategy) []capacity.Pod {
			p[0].Zones = []int{0}
			return p
		}, []capacity.Amounts{of(10, 15.3), of(15, 17.7)}},
		// 50 − 17.5 − 3.5 − (14 + 10 + 1), 50 − 17.5 − 3.5 − (14 + 1); memory 62 × 65 % − (25 + 10), 58 × 65 % − 25.
		{"an LSE pod without a report, one that is gone, memory by request", func(_ *capacity.Node, p []capacity.Pod, r *capacity.Report, s *capacity.BatchStrategy) []capacity.Pod {
			p[0].Zones, p[0].QoS, s.Memory = []int{0}, protocol.QoSLSE, capacity.ByRequest
			r.Pods[0] = capacity.Usage{Name: "test/gone", Class: protocol.PriorityProd, Used: of(2, 4)}
			return p
		}, []capacity.Amounts{of(4, 5.3), of(14, 12.7)}},
		{"a memory node that is not there is all of them", func(_ *capacity.Node, p []capacity.Pod, _ *capacity.Report, _ *capacity.BatchStrategy) []capacity.Pod {
			p[0].Zones = []int{7}
			return p
		}, []capacity.Amounts{of(12.5, 17.8), of(12.5, 15.2)}},
		{"zones go by their numbers", func(n *capacity.Node, p []capacity.Pod, _ *capacity.Report, _ *capacity.BatchStrategy) []capacity.Pod {
			n.Zones = []capacity.Zone{zones[1], zones[0]}
			p[0].Zones = []int{0}
			return p
		}, []capacity.Amounts{of(15, 17.7), of(10, 15.3)}},
		{"reserved of each", func(n *capacity.Node, p []capacity.Pod, _ *capacity.Report, _ *capacity.BatchStrategy) []capacity.Pod {
			n.Annotation = of(20, 20)
			return p
		}, []capacity.Amounts{of(6, 13.8), of(6, 11.2)}},
		{"no zones", func(n *capacity.Node, p []capacity.Pod, _ *capacity.Report, _ *capacity.BatchStrategy) []capacity.Pod {
			n.Zones = nil
			return p
		}, []capacity.Amounts{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n, s := plainNode(), strategy(65, 65)
			n.Zones = zones
			pods, report := classes()
			pods = tc.change(&n, pods, &report, &s)
			if diff := cmp.Diff(tc.want, s.BatchZones(&n, pods, &report)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestZonesTogether: what the zones lend together is what the node lends, less what was rounded.
func TestZonesTogether(t *testing.T) {
	t.Parallel()
	n, s := plainNode(), strategy(65, 65)
	n.Zones = []capacity.Zone{{ID: 0, Capacity: of(33, 40)}, {ID: 1, Capacity: of(33, 40)}, {ID: 2, Capacity: of(34, 40)}}
	pods, report := classes()
	var sum capacity.Amounts
	for _, z := range s.BatchZones(&n, pods, &report) {
		sum = sum.Plus(z)
	}
	whole := s.Batch(&n, pods, &report)
	if rest := whole.Minus(sum); sum.Minus(whole) != (capacity.Amounts{}) || rest.CPU > 20 || rest.Memory > 20 {
		t.Errorf("zones lend %+v, the node %+v", sum, whole)
	}
}

func TestLessThirdParty(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		booked []capacity.Amounts
		want   capacity.Amounts
	}{
		"nobody": {nil, of(25, 33)}, "two": {[]capacity.Amounts{of(5, 3), of(10, 10)}, of(10, 20)},
		"more than there is": {[]capacity.Amounts{of(30, 1)}, of(0, 32)},
	} {
		if got := capacity.LessThirdParty(of(25, 33), tc.booked); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}
