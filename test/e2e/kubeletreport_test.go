// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// reported: the NodeMetric has the pods and what they use, and the guest's two memory nodes, which together use what the node does, each its part.
func (n *served) reported() {
	n.t.Helper()
	_, err := n.c.Admin().Create(n.t.Context(), nodeMetrics, cluster.Object{
		"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": map[string]any{"name": n.k.Node},
		"spec": map[string]any{"metricCollectPolicy": map[string]any{"aggregateDurationSeconds": 60, "reportIntervalSeconds": int(reportEvery / time.Second)}},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	got := n.await(nodeMetrics+"/"+n.k.Node, "a report of every pod", func(o cluster.Object) bool {
		list, _ := o.At("status", "podsMetric").([]any)
		seen := map[string]bool{}
		for i := range list {
			at := func(steps ...any) []any { return append([]any{"status", "podsMetric", i}, steps...) }
			if o.Str(at("podUsage", "resources", "memory")...) != "" {
				seen[o.Str(at("name")...)] = true
			}
		}
		return seen["lsr"] && seen["ls"] && seen["be"] && o.Str("status", "nodeMetric", "nodeUsage", "resources", "cpu") != ""
	})
	list, _ := got.At("status", "nodeMetric", "numaUsages").([]any)
	if len(list) != 2 {
		n.t.Fatalf("%d memory nodes, want 2: %s", len(list), got.Compact("status", "nodeMetric"))
	}
	for _, usage := range []string{"nodeUsage", "systemUsage"} {
		cpu := n.milli(got, "status", "nodeMetric", usage, "resources", "cpu")
		for i := range list {
			at := func(resource string) []any {
				return []any{"status", "nodeMetric", "numaUsages", i, usage, "resources", resource}
			}
			if got.Int("status", "nodeMetric", "numaUsages", i, "numaNodeID") != i || n.milli(got, at("memory")...) == 0 {
				n.t.Errorf("%s of memory node %d: %s", usage, i, got.Compact("status", "nodeMetric", "numaUsages"))
			}
			cpu -= n.milli(got, at("cpu")...)
		}
		if math.Abs(cpu) > 200 {
			n.t.Errorf("%s of the node and of its memory nodes differ by %.0f thousandths of a CPU: %s", usage, cpu, got.Compact("status", "nodeMetric"))
		}
	}
	n.placed()
}

// lsrHolds is what lsr holds, in bytes, on the memory node of its CPU.
const lsrHolds = 32 * mib

// placed: each memory node has its own figures. What one uses and the system does not is what the pods hold there by the kernel's count, and that is very
// different on the two: lsr runs on a CPU of node 1. What is used at all is so by the memory node's own meminfo.
func (n *served) placed() {
	n.t.Helper()
	lsr := n.dir(n.ready("lsr"))
	if here, there := n.lies(lsr, 1), n.lies(lsr, 0); here < lsrHolds/mib || there > 4 {
		n.t.Fatalf("lsr on CPU 7 holds %.1f MiB on memory node 1 and %.1f on 0, want %d and next to nothing", here, there, lsrHolds/mib)
	}
	var said string
	n.eventually(30*time.Second, func() error { // the next report, if that of now is of a minute for most of which lsr was not there
		metric, err := n.c.Admin().Get(n.t.Context(), nodeMetrics+"/"+n.k.Node)
		if err != nil {
			return err
		}
		var errs []error
		said = ""
		for i := range 2 {
			told := func(usage string) float64 {
				return n.milli(metric, "status", "nodeMetric", "numaUsages", i, usage, "resources", "memory") / 1000 / mib
			}
			uses, pods := told("nodeUsage"), told("nodeUsage")-told("systemUsage")
			really, held := n.usesOn(i), n.lies(n.kubepods(""), i)
			if pods < held/2 || pods > held+6 || math.Abs(uses-really) > 64 {
				errs = append(errs, fmt.Errorf("memory node %d has %.1f MiB of pods and %.0f in use by the NodeMetric, by the kernel %.1f and %.0f", i, pods, uses, held, really))
			}
			said += fmt.Sprintf("; node %d: %.1f MiB of pods, by the kernel %.1f; %.0f in use, by the kernel %.0f", i, pods, held, uses, really)
		}
		return errors.Join(errs...)
	})
	n.tell("memory nodes%s", said)
}

// lies is what a cgroup and those below it hold on a memory node beside page cache, in MiB.
func (n *served) lies(dir string, node int) (sum float64) {
	n.t.Helper()
	for line := range strings.Lines(n.file(dir, "memory.numa_stat")) {
		words := strings.Fields(line)
		if words[0] != "inactive_anon" && words[0] != "active_anon" && words[0] != "unevictable" {
			continue
		}
		var bytes float64
		if _, err := fmt.Sscanf(words[1+node], "N"+strconv.Itoa(node)+"=%g", &bytes); err != nil {
			n.t.Fatalf("memory.numa_stat of %s: %v: %s", dir, err, line)
		}
		sum += bytes / mib
	}
	return sum
}

// usesOn is what a memory node uses beside page cache, in MiB. What is free on lists of the CPUs is not in its MemFree.
func (n *served) usesOn(node int) (used float64) {
	n.t.Helper()
	for line := range strings.Lines(n.file("/sys/devices/system/node/node"+strconv.Itoa(node), "meminfo")) {
		var name string
		var kib float64
		if _, err := fmt.Sscanf(line, "Node %d %s %g", new(int), &name, &kib); err != nil {
			n.t.Fatalf("meminfo of memory node %d: %v: %s", node, err, line)
		}
		switch name {
		case "MemTotal:":
			used += kib / 1024
		case "MemFree:", "Active(file):", "Inactive(file):", "SReclaimable:":
			used -= kib / 1024
		}
	}
	var zoneOf, pages int
	for line := range strings.Lines(n.file("/proc", "zoneinfo")) {
		if _, err := fmt.Sscanf(line, "Node %d, zone", &zoneOf); err == nil {
			continue
		}
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "count: %d", &pages); err == nil && zoneOf == node {
			used -= float64(pages) * 4096 / mib
		}
	}
	return used
}

// milli is an amount of an object, in thousandths.
func (n *served) milli(o cluster.Object, at ...any) float64 {
	n.t.Helper()
	v, err := kubelet.Quantity(o.Str(at...)).Milli()
	if err != nil {
		n.t.Fatalf("%v: %v", at, err)
	}
	return float64(v)
}
