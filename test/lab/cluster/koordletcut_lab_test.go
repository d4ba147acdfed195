// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// cut: somebody has halved a container's quota in its cgroup. Runtime and kubelet know nothing of it, and koordlet, whose it is not, leaves it
// alone. The kernel takes no burst above it, so that a strategy that wants more is in force but for this value: the status names it after half a
// minute, before which it says nothing of this generation, until the quota is back.
func (n *governed) cut(t *testing.T) {
	quota := func(us string) {
		t.Helper()
		file, value := "cpu.cfs_quota_us", us
		if n.tree.V2() {
			file, value = "cpu.max", us+" 100000"
		}
		if err := cgroups.Write(filepath.Join(n.podDir(n.ls, "cpu"), idOf(n.ls)), file, value); err != nil {
			t.Fatal(err)
		}
	}
	has := func(quota, burst string) {
		t.Helper()
		eventually(t, 60*time.Second, func() error { return n.limits(n.ls, quota, burst) })
	}
	has("10000", "0")
	// A kubelet that was started lately has its CPU manager update each container once, and with it the runtime write every limit.
	eventually(t, 2*time.Minute, func() error {
		quota("5000")
		time.Sleep(12 * time.Second)
		return n.limits(n.ls, "5000", "0")
	})
	begun := time.Now()
	n.patch(t, map[string]any{"cpuBurstStrategy": map[string]any{"policy": "cpuBurstOnly", "cpuBurstPercent": 1000}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got, err := n.c.Admin().Wait(ctx, slos+"/"+n.k.Node, "a status of the strategy", func(o cluster.Object) bool {
		return o != nil && o.Int("status", "observedGeneration") == o.Int("metadata", "generation")
	})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	const want = `1 value is not in the kernel: cpu.burst of container batch/ls/main: want 10000, got "5000"`
	if applied := got.Str("status", "conditions", 0, "message"); got.Condition("Applied") != "False" || applied != want || took < 30*time.Second {
		t.Errorf("after %s the status says %q, want %q after half a minute: %s", took, applied, want, got.Compact("status", "conditions", 0))
	}
	t.Logf("told after %s", took.Round(time.Millisecond))
	if line := `msg="NodeSLO is in force but for some values"`; !strings.Contains(read(t, filepath.Join(n.dir, "koordlet.log")), line) {
		t.Errorf("koordlet's log has no %s", line)
	}
	if err := n.limits(n.ls, "5000", "5000"); err != nil {
		t.Error(err)
	}
	quota("10000")
	has("10000", "10000")
	n.inForce(t)
	n.patch(t, map[string]any{"cpuBurstStrategy": nil})
	has("10000", "0")
	n.inForce(t)
}
