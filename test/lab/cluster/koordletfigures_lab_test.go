// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// windows of the node's percentiles: the first is the window of the averages, the second longer than koordlet has lived.
var windows = []string{"1m", "30m"}

// resources are CPUs and bytes at a place of a NodeMetric's status; ok when both are told.
func resources(t *testing.T, metric cluster.Object, at ...any) (cpu, memory float64, ok bool) {
	t.Helper()
	path := append(append([]any{"status"}, at...), "resources")
	c, m := metric.Str(append(path, "cpu")...), metric.Str(append(path, "memory")...)
	if c == "" || m == "" {
		return 0, 0, false
	}
	return amount(t, c), amount(t, m), true
}

// distributed: percentiles of the node and of the system over the window of the averages, whose average is that average. A window that is
// not half measured is not told.
func distributed(t *testing.T, metric cluster.Object) error {
	t.Helper()
	total, _ := memory(t)
	for usages, usage := range map[string]string{"aggregatedNodeUsages": "nodeUsage", "aggregatedSystemUsages": "systemUsage"} {
		list, _ := metric.At("status", "nodeMetric", usages).([]any)
		if len(list) != 1 || metric.Str("status", "nodeMetric", usages, 0, "duration") != "1m0s" {
			return fmt.Errorf("%s, want one of a minute: %s", usages, metric.Compact("status", "nodeMetric", usages))
		}
		lastCPU, lastMemory := 0.0, 0.0
		for _, p := range []string{"p50", "p90", "p95", "p99"} {
			cpu, memory, ok := resources(t, metric, "nodeMetric", usages, 0, "usage", p)
			if !ok || cpu < lastCPU || memory < lastMemory || cpu > 1.1*float64(runtime.NumCPU()) || memory > total {
				t.Errorf("%s of %s: %s", p, usages, metric.Compact("status", "nodeMetric", usages))
			}
			lastCPU, lastMemory = cpu, memory
		}
		avg := metric.Compact("status", "nodeMetric", usages, 0, "usage", "avg")
		if want := metric.Compact("status", "nodeMetric", usage); lastCPU == 0 || lastMemory == 0 || avg != want {
			t.Errorf("%s: average %s, want %s as %s of the same minute", usages, avg, want, usage)
		}
	}
	return nil
}

// predicted: production pods will need at most what ls spins at and victim computes, and next to no memory, though one of them asks for
// four fifths of the node's: that is told to be free, and with the peak it is no more than the node can allocate.
func (n *governed) predicted(t *testing.T, metric cluster.Object) error {
	t.Helper()
	cpu, memory, known := resources(t, metric, "prodPeakMetric", "resource")
	freeCPU, freeMemory, free := resources(t, metric, "prodReclaimableMetric", "resource")
	if !known || !free || memory > 128*mib {
		return fmt.Errorf("prediction of prod: %s, peak %s", metric.Compact("status", "prodReclaimableMetric"), metric.Compact("status", "prodPeakMetric"))
	}
	node, err := n.c.Admin().Get(t.Context(), "/api/v1/nodes/"+n.k.Node)
	if err != nil {
		return err
	}
	has := func(resource string) float64 { return amount(t, node.Str("status", "allocatable", resource)) }
	if cpu < 0.05 || cpu > 1.3 || memory < 0.1*mib {
		t.Errorf("peak of prod, whose pod ls spins at 100m: %.3f CPUs, %.1f MiB", cpu, memory/mib)
	}
	if freeCPU > 0.102 { // what ls and victim ask for
		t.Errorf("%.3f CPUs are reclaimable of 102m that production pods ask for", freeCPU)
	}
	if cpu+freeCPU > has("cpu")+0.002 || memory+freeMemory > has("memory")+2048 {
		t.Errorf("peak and reclaimable together are more than the node has to allocate: %s, %s; %s", metric.Compact("status", "prodPeakMetric"),
			metric.Compact("status", "prodReclaimableMetric"), node.Compact("status", "allocatable"))
	}
	return nil
}

// byMemoryNode: every memory node has its use and its part of the system's: together the CPUs that the node uses, and all of the system. The
// kernel tells no MemAvailable of a memory node, so that memory is another figure than the node's.
func byMemoryNode(t *testing.T, metric cluster.Object) {
	t.Helper()
	nodes, err := filepath.Glob("/sys/devices/system/node/node[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	list, _ := metric.At("status", "nodeMetric", "numaUsages").([]any)
	if len(list) != max(len(nodes), 1) {
		t.Errorf("%d memory nodes: %s", len(nodes), metric.Compact("status", "nodeMetric", "numaUsages"))
	}
	total, _ := memory(t)
	for _, usage := range []string{"nodeUsage", "systemUsage"} {
		cpu, memory, _ := resources(t, metric, "nodeMetric", usage)
		for i := range list {
			c, m, ok := resources(t, metric, "nodeMetric", "numaUsages", i, usage)
			if !ok || m == 0 || m > total || metric.Int("status", "nodeMetric", "numaUsages", i, "numaNodeID") != i {
				t.Errorf("%s of memory node %d: %s", usage, i, metric.Compact("status", "nodeMetric", "numaUsages"))
			}
			cpu, memory = cpu-c, memory-m
		}
		if math.Abs(cpu) > 0.1 || usage == "systemUsage" && math.Abs(memory) > 64*mib {
			t.Errorf("%s of the node and of its memory nodes differ by %.3f CPUs and %.1f MiB: %s", usage, cpu, memory/mib, metric.Compact("status", "nodeMetric"))
		}
		t.Logf("%s of the node less those of its memory nodes: %.3f CPUs, %.1f MiB", usage, cpu, memory/mib)
	}
}
