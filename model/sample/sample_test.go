// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sample

import (
	"math"
	"regexp"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	seen := map[string]Metric{}
	for m := Metric(1); m < NumMetrics; m++ {
		if !name.MatchString(m.String()) || m.Help() == "" || m.Unit().String() == "unknown" {
			t.Errorf("metric %d: name %q, unit %s, help %q", m, m, m.Unit(), m.Help())
		}
		if other, ok := seen[m.String()]; ok {
			t.Errorf("metrics %d and %d are both named %s", m, other, m)
		}
		seen[m.String()] = m
	}
	for k := Kind(1); k < numKinds; k++ {
		if kinds[k].name == "" || !name.MatchString(kinds[k].prefix) {
			t.Errorf("kind %d has no name or prefix", k)
		}
	}
	for _, m := range []Metric{0, NumMetrics, 255} {
		if m.Valid() || m.String() != "unknown" || m.Name(Node) != "unknown" || m.Unit().String() != "unknown" || m.Slow(Pod) {
			t.Errorf("metric %d is no metric", m)
		}
	}
	if Kind(0).String() != "unknown" || Kind(200).String() != "unknown" || CPUUsage.Name(0) != "unknown" {
		t.Error("kind 0 or 200 has a name")
	}
}

// TestUpstreamNames: the names of the metric cache of koordlet 1.8 (koordinator-node.md §7.2) where the meaning is the same.
func TestUpstreamNames(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"node_cpu_usage":                       CPUUsage.Name(Node),
		"node_memory_usage_with_page_cache":    MemoryWithPageCache.Name(Node),
		"node_numa_cpu_usage":                  CPUUsage.Name(NUMA),
		"sys_memory_usage":                     MemoryUsage.Name(System),
		"sys_numa_memory_usage":                MemoryUsage.Name(SystemNUMA),
		"pod_memory_with_hot_page_usage":       MemoryWithHotPages.Name(Pod),
		"container_memory_cold_page_size":      MemoryColdPages.Name(Container),
		"pod_cpu_throttled":                    CPUThrottled.Name(Pod),
		"host_application_cpu_usage":           CPUUsage.Name(HostApp),
		"resctrl_resource_llc":                 LLCOccupancy.Name(LLC),
		"host_application_memory_usage":        MemoryUsage.Name(HostApp),
		"container_memory_usage":               MemoryUsage.Name(Container),
		"container_memory_with_hot_page_usage": MemoryWithHotPages.Name(Container),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Subject{
		"node":               OfNode(),
		"system":             OfSystem(),
		"class/BE":           OfQoS(protocol.QoSBE),
		"class/none":         OfQoS(protocol.QoSNone),
		"class/koord-batch":  OfPriority(protocol.PriorityBatch),
		"class/koord-none":   OfPriority(protocol.PriorityNone),
		"numa/1":             OfNUMA(1),
		"system-numa/0":      OfSystemNUMA(0),
		"hostapp/nginx":      OfHostApp("nginx"),
		"pod/1-2-3":          OfPod("1-2-3"),
		"container/abc":      OfContainer("abc"),
		"llc/BE/2":           OfLLC("BE", 2),
		"llc//0":             OfLLC("", 0),
		"disk/259:0":         OfDisk("259:0"),
		"unknown":            {},
		"unknown/somebody":   {ID: "somebody"},
		"container/with/bar": OfContainer("with/bar"),
	} {
		if got := s.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if !Class.OfNode() || Pod.OfNode() || LLC.OfNode() {
		t.Error("classes belong to the node, pods and cache groups do not")
	}
	if PSICPUSome.Slow(Node) || !PSICPUSome.Slow(Container) || CPUUsage.Slow(Container) {
		t.Error("PSI is slow for containers only, CPU usage for nobody")
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	type step struct {
		value uint64
		at    unit.Micros
		want  float64 // per second; -1 for nothing
	}
	for name, steps := range map[string][]step{
		"growth":       {{100, 1 * unit.Second, -1}, {350, 2 * unit.Second, 250}, {350, 4 * unit.Second, 0}, {351, 4500 * unit.Millisecond, 2}},
		"from zero":    {{0, 0, -1}, {10, unit.Second, 10}},
		"reset":        {{900, unit.Second, -1}, {100, 2 * unit.Second, -1}, {200, 3 * unit.Second, 100}},
		"wrap":         {{math.MaxUint64, unit.Second, -1}, {9, 2 * unit.Second, -1}, {19, 3 * unit.Second, 10}},
		"32-bit wrap":  {{math.MaxUint32 - 1, unit.Second, -1}, {9, 2 * unit.Second, -1}},
		"duplicate":    {{100, unit.Second, -1}, {150, unit.Second, -1}, {200, 2 * unit.Second, 100}},
		"clock back":   {{100, 9 * unit.Second, -1}, {200, 3 * unit.Second, -1}, {260, 4 * unit.Second, 60}},
		"out of order": {{100, 2 * unit.Second, -1}, {50, 1 * unit.Second, -1}, {150, 3 * unit.Second, 50}},
		"clock jump":   {{0, unit.Second, -1}, {7200, 7201 * unit.Second, 1}},
		"largest":      {{0, 0, -1}, {math.MaxUint64, unit.Second, math.MaxUint64}},
	} {
		var r Rate
		for i, s := range steps {
			d, ok := r.Next(s.value, s.at)
			if got := perSecond(d, ok); got != s.want {
				t.Errorf("%s: step %d: got %v, want %v", name, i, got, s.want)
			}
		}
	}
}

func perSecond(d Delta, ok bool) float64 {
	if !ok {
		return -1
	}
	return d.PerSecond()
}

func TestShare(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		part, whole uint64
		want        float64
		ok          bool
	}{
		"three of ten":       {3, 10, 0.3, true},
		"none of ten":        {0, 10, 0, true},
		"more than all":      {11, 10, 1, true},
		"nothing is unknown": {0, 0, 0, false},
		"part without whole": {1, 0, 0, false},
	} {
		got, ok := Share(Delta{c.part, unit.Second}, Delta{c.whole, unit.Second})
		if got != c.want || ok != c.ok {
			t.Errorf("%s: got %v %v, want %v %v", name, got, ok, c.want, c.ok)
		}
	}
}

func TestRank(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, p, want int }{
		{0, 90, 0}, {1, 50, 1}, {1, 99, 1}, {10, 50, 5}, {10, 90, 9}, {10, 95, 10}, {60, 90, 54}, {100, 99, 99}, {101, 99, 100}, {1800, 95, 1710},
	} {
		if got := Rank(c.n, c.p); got != c.want {
			t.Errorf("rank of p%d among %d: got %d, want %d", c.p, c.n, got, c.want)
		}
	}
	if (Summary{}).Known() || !(Summary{Count: 1}).Known() {
		t.Error("a summary is known from its first sample on")
	}
}
