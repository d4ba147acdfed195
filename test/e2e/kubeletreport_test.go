// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"math"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// reported: the NodeMetric has the pods and what they use, and the guest's two memory nodes, which together use what the node does.
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
