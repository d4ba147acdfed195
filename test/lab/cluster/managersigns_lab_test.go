// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// signsConfig is colocation-config by which a sound node of 128 CPUs and 128 GiB that uses 4 of each lends 60 CPUs and 60 GiB as batch, and 8
// of each as mid.
const signsConfig = `{"enable": true, "cpuReclaimThresholdPercent": 50, "memoryReclaimThresholdPercent": 50, "extensions": {"koord-rt.dev/lending-health":
  {"contradictionSeconds": 1, "recoverySeconds": 1, "memoryPressureWatermarkScaleFactor": 180}}}`

// sign is what a simulated node tells of itself, and what is lent out of it then.
type sign struct {
	age       time.Duration // of its report, negative: ahead
	node      int           // CPUs and GiB that the node uses, 0 for 4
	system    int           // of them the system, 0 for 4
	evictions int
	short     []string // conditions that are True
	// lends is percent of what a sound node would lend, absent for nothing at all; reasons are why.
	lends   int
	reasons []string
}

const absent = -1

// signs are what makes a node unsound, each alone and some together.
var signs = map[string]sign{
	"sound":         {lends: 100},
	"stale":         {age: 350 * time.Second, lends: 75, reasons: []string{protocol.UnsoundStale}},
	"staler":        {age: 550 * time.Second, lends: 50, reasons: []string{protocol.UnsoundStale}},
	"stalest":       {age: 750 * time.Second, lends: 25, reasons: []string{protocol.UnsoundStale}},
	"too-old":       {age: 16 * time.Minute, lends: absent},
	"ahead":         {age: -650 * time.Second, lends: 50, reasons: []string{protocol.UnsoundStale}},
	"beyond":        {node: 136, lends: 50, reasons: []string{protocol.UnsoundContradiction}},
	"parts":         {system: 30, lends: 50, reasons: []string{protocol.UnsoundContradiction}},
	"within":        {system: 29, lends: 100}, // a fifth of the node is tolerated
	"memory":        {short: []string{"MemoryPressure"}, lends: 0, reasons: []string{protocol.UnsoundMemory}},
	"disk":          {short: []string{"DiskPressure"}, lends: 50, reasons: []string{protocol.UnsoundDisk}},
	"pids":          {short: []string{"PIDPressure"}, lends: 50, reasons: []string{protocol.UnsoundPIDs}},
	"evicts-some":   {evictions: 3, lends: 100},
	"evicts":        {evictions: 4, lends: 75, reasons: []string{protocol.UnsoundEvictions}},
	"evicts-more":   {evictions: 6, lends: 50, reasons: []string{protocol.UnsoundEvictions}},
	"evicts-always": {evictions: 1000, lends: 25, reasons: []string{protocol.UnsoundEvictions}},
	"all": {age: 350 * time.Second, system: 30, evictions: 4, short: []string{"DiskPressure", "PIDPressure"}, lends: 50, reasons: []string{
		protocol.UnsoundStale, protocol.UnsoundContradiction, protocol.UnsoundDisk, protocol.UnsoundPIDs, protocol.UnsoundEvictions,
	}},
}

// unsound: each sign that a node is not sound takes the documented part away from all that it lends, and the node says why. A manager that
// starts anew goes on from there, and a node whose signs have gone gets everything back.
func (n *simulated) unsound(t *testing.T) {
	for name := range signs {
		n.node(t, name)
	}
	n.tell(t, map[string]string{keyColocation: signsConfig})
	for name, s := range signs {
		n.shows(t, name, s)
	}
	lends := func(want func(sign) sign) {
		t.Helper()
		begun := time.Now()
		eventually(t, 30*time.Second, func() error {
			var errs []error
			for name, s := range signs {
				errs = append(errs, n.lends(t, name, want(s)))
			}
			return errors.Join(errs...)
		})
		t.Logf("all lend what they should after %s", time.Since(begun).Round(time.Millisecond))
	}
	same := func(s sign) sign { return s }
	lends(same)
	n.becomes(t, slos+"/memory", "watermark of the node that is short of memory", func(o cluster.Object) bool {
		return o.Int("spec", "systemStrategy", "watermarkScaleFactor") == 180
	})
	if o, err := n.c.Admin().Get(t.Context(), slos+"/disk"); err != nil || o.At("spec", "systemStrategy") != nil {
		t.Errorf("NodeSLO of a node that is short of disk: %v, %s", err, o.Compact("spec"))
	}

	before := map[string]string{}
	for name := range signs {
		before[name] = n.weight(t, name)
	}
	n.manager(t)
	for name, s := range signs {
		for _, reason := range s.reasons {
			n.running.shows(t, 30*time.Second, `koord_rt_manager_node_unsound\{node="`+name+`",reason="`+reason+`"\} 1`)
		}
	}
	lends(same)
	for name := range signs {
		if after := n.weight(t, name); after != before[name] {
			t.Errorf("%s: a manager that started anew made %s of %s", name, after, before[name])
		}
	}

	for name := range signs {
		n.shows(t, name, sign{})
	}
	lends(func(sign) sign { return sign{lends: 100} })
	n.becomes(t, slos+"/memory", "watermark as it was", func(o cluster.Object) bool { return o.At("spec", "systemStrategy") == nil })
	n.tell(t, map[string]string{keyColocation: ""})
}

// shows writes what a node tells of itself: its report and its kubelet's conditions.
func (n *simulated) shows(t *testing.T, name string, s sign) {
	t.Helper()
	amounts := func(n int) map[string]any {
		if n == 0 {
			n = 4
		}
		return map[string]any{"resources": map[string]any{"cpu": fmt.Sprint(n), "memory": fmt.Sprint(n) + "Gi"}}
	}
	n.report(t, name, map[string]any{
		"updateTime": time.Now().Add(-s.age).UTC().Format(time.RFC3339),
		"nodeMetric": map[string]any{"nodeUsage": amounts(s.node), "systemUsage": amounts(s.system)},
		"evictions":  map[string]any{"lastHour": s.evictions}, "prodReclaimableMetric": map[string]any{"resource": amounts(8)},
	})
	var conditions []any
	for _, kind := range []string{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		status := "False"
		if slices.Contains(s.short, kind) {
			status = "True"
		}
		conditions = append(conditions, map[string]any{"type": kind, "status": status})
	}
	patch := map[string]any{"status": map[string]any{"conditions": conditions}}
	if _, err := n.c.Admin().Patch(t.Context(), "/api/v1/nodes/"+name+"/status", cluster.StrategicPatch, patch); err != nil {
		t.Fatal(err)
	}
}

// lends is an error unless a node lends what it should, and says why.
func (n *simulated) lends(t *testing.T, name string, s sign) error {
	t.Helper()
	node, err := n.c.Admin().Get(t.Context(), "/api/v1/nodes/"+name)
	if err != nil {
		return err
	}
	want := map[string]int64{}
	if s.lends != absent {
		batch, mid, percent := int64(64-max(s.system, 4)), int64(8), int64(s.lends)
		if s.node > 128 {
			mid = 0 // of what is idle, which is nothing
		}
		want = map[string]int64{
			protocol.ResourceBatchCPU: batch * 1000 * percent / 100, protocol.ResourceBatchMemory: batch << 30 * percent / 100,
			protocol.ResourceMidCPU: mid * 1000 * percent / 100, protocol.ResourceMidMemory: mid << 30 * percent / 100,
		}
	}
	got := map[string]int64{}
	for amount := range ourAmounts(node, "allocatable") {
		got[amount] = quantityAt(t, node, "status", "allocatable", amount) / 1000
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("%s lends %v, want %v", name, got, want)
	}
	text := node.Str("metadata", "annotations", protocol.AnnotationLendingWeight)
	if len(s.reasons) == 0 {
		if text != "" {
			return fmt.Errorf("%s says %s", name, text)
		}
		return nil
	}
	w, err := protocol.ParseLendingWeight(text)
	if err != nil || int(w.Percent) != s.lends || !slices.Equal(w.Reasons, s.reasons) {
		return fmt.Errorf("%s says %s (%v), want %d %% for %s", name, text, err, s.lends, strings.Join(s.reasons, ", "))
	}
	return nil
}

// weight is what a node says of its weight.
func (n *simulated) weight(t *testing.T, name string) string {
	t.Helper()
	node, err := n.c.Admin().Get(t.Context(), "/api/v1/nodes/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return node.Str("metadata", "annotations", protocol.AnnotationLendingWeight)
}
