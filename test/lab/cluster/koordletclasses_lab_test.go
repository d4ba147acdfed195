// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// mixed runs a pod of class LSR and one without label, which hold memory and ask for no CPU.
func (n *governed) mixed(t *testing.T) {
	t.Helper()
	holds := func(size string) string {
		return `command: [/bin/sh, -c, "dd if=/dev/zero bs=` + size + ` count=1 | sleep 2147483647"], resources: {requests: {memory: ` + size + `i}}`
	}
	n.create(t, "lsr", "labels: {koordinator.sh/qosClass: LSR}", holds("24M"))
	n.create(t, "plain", "labels: {app: plain}", holds("32M"))
	n.ready(t, "lsr")
	n.ready(t, "plain")
}

// byClass: what best-effort pods hold together is beMetric, and what all others hold lsMetric, whatever their class (C2 of the documents).
// victim has come last, and is in the average of its class for a part of the time only.
func byClass(t *testing.T, metric cluster.Object) error {
	t.Helper()
	classes := [...]string{"beMetric", "lsMetric"}
	var sums [len(classes)]float64
	list, _ := metric.At("status", "podsMetric").([]any)
	for i := range list {
		_, memory, _ := resources(t, metric, "podsMetric", i, "podUsage")
		if metric.Str("status", "podsMetric", i, "qos") == "BE" {
			sums[0] += memory
		} else {
			sums[1] += memory
		}
	}
	for i, class := range classes {
		text := metric.Str("status", class, "usage", "memory")
		if text == "" || math.Abs(amount(t, text)-sums[i]) > 16*mib {
			return fmt.Errorf("%s has %q of memory, its pods %.1f MiB: %s", class, text, sums[i]/mib, metric.Compact("status", "podsMetric"))
		}
	}
	return nil
}

// requestsAdd: what the node's pods request is what best-effort pods and all others request (C2 of the documents), to the unit: a report counts
// the same pods for all three.
func requestsAdd(t *testing.T, metric cluster.Object) error {
	t.Helper()
	for _, resource := range []string{"cpu", "memory"} {
		of := func(part string) float64 { return amount(t, metric.Str("status", part, "request", resource)) }
		if whole, be, others := of("nodeMetric"), of("beMetric"), of("lsMetric"); math.Abs(whole-be-others) > 0.0005 {
			return fmt.Errorf("%s: the node's pods request %g, best-effort ones %g, all others %g", resource, whole, be, others)
		}
	}
	return nil
}
