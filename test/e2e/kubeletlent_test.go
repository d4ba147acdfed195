// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// lends is colocation-config: reports of 15 s each ten seconds, and all of the node lent that is not used. Small differences are written too, so that
// the Node says what the formula says.
const lends = `{"enable": true, "metricAggregateDurationSeconds": 15, "metricReportIntervalSeconds": 10, "cpuReclaimThresholdPercent": 100,
  "memoryReclaimThresholdPercent": 100, "resourceDiffThreshold": 0.01, "updateTimeThresholdSeconds": 1}`

// lent waits until the Node has what the formula gives for its NodeMetric, in words of this test: the whole node, less the larger of what the system
// uses and what is reserved, less what pods use that are not best effort; and until that and the use of the pod busy, in thousandths of a CPU, fit.
func (n *served) lent(when string, fits func(batch, busy float64) bool) (batch float64) {
	n.t.Helper()
	begun := time.Now()
	n.eventually(40*time.Second, func() error {
		metric, err := n.c.Admin().Get(n.t.Context(), nodeMetrics+"/"+n.k.Node)
		if err != nil {
			return err
		}
		node, err := n.c.Admin().Get(n.t.Context(), "/api/v1/nodes/"+n.k.Node)
		if err != nil {
			return err
		}
		if metric.Str("status", "nodeMetric", "nodeUsage", "resources", "cpu") == "" {
			return errors.New("the node has not reported")
		}
		cpu, busy := n.lentBy(node, metric, "cpu")
		memory, _ := n.lentBy(node, metric, "memory")
		for name, want := range map[string]float64{protocol.ResourceBatchCPU: cpu, protocol.ResourceBatchMemory: memory / 1000} { // CPU is in thousandths there, too
			for _, list := range []string{"allocatable", "capacity"} {
				text := node.Str("status", list, name)
				got, err := strconv.ParseFloat(text, 64)
				if off := max(got-want, want-got); err != nil || off*500 > want { // less is not worth a write
					return fmt.Errorf("%s of %s is %q, want %.0f by the NodeMetric", name, list, text, want)
				}
			}
		}
		if batch = cpu; !fits(batch, busy) {
			return fmt.Errorf("batch-cpu %s is %.0f, by a report of %.0f used by busy", when, batch, busy)
		}
		n.tell("batch-cpu %s is %.0f and batch-memory %.0f after %s, and busy uses %.0f", when, batch, memory/1000, time.Since(begun).Round(time.Millisecond), busy)
		return nil
	})
	return batch
}

// lentBy is the formula for one resource; busy is the use of the pod of that name.
func (n *served) lentBy(node, metric cluster.Object, resource string) (batch, busy float64) {
	n.t.Helper()
	all := n.milli(node, "status", "capacity", resource)
	reserved := all - n.milli(node, "status", "allocatable", resource)
	if resource == "cpu" {
		reserved = max(reserved, 1000) // the CPU of reservation
	}
	batch = all - max(n.milli(metric, "status", "nodeMetric", "systemUsage", "resources", resource), reserved)
	list, _ := metric.At("status", "podsMetric").([]any)
	for i := range list {
		used := n.milli(metric, "status", "podsMetric", i, "podUsage", "resources", resource)
		if metric.Str("status", "podsMetric", i, "name") == "busy" {
			busy = used
		}
		if metric.Str("status", "podsMetric", i, "qos") != "BE" {
			batch -= used
		}
	}
	return max(batch, 0), busy
}

// lendsNothing: a Node has no batch and no mid resources, in neither list.
func lendsNothing(node cluster.Object) bool {
	for _, list := range []string{"allocatable", "capacity"} {
		amounts, _ := node.At("status", list).(map[string]any)
		for name := range amounts {
			if strings.Contains(name, "/batch-") || strings.Contains(name, "/mid-") {
				return false
			}
		}
	}
	return true
}
