// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// cached is the page cache that pageCache makes, in bytes.
const cached = 400 * mib

// pageCache: a file that prod has written is no use of memory by the default of the report's policy, and one of the pod and of the node
// where the policy counts page cache.
func (n *governed) pageCache(t *testing.T) {
	t.Helper()
	file := filepath.Join(n.dir, "cached")
	dir := filepath.Join(n.podDir(n.prod, "memory"), idOf(n.prod))
	write := fmt.Sprintf("echo $$ > %s/cgroup.procs && exec dd if=/dev/zero of=%s bs=1M count=%d conv=fsync", dir, file, cached/mib)
	if out, err := exec.Command("sh", "-c", write).CombinedOutput(); err != nil {
		t.Fatalf("write a file: %v\n%s", err, out)
	}
	policy := func(memory any) {
		t.Helper()
		if _, err := n.c.Admin().Patch(t.Context(), reports+"/"+n.k.Node, cluster.MergePatch, cluster.Object{
			"spec": map[string]any{"metricCollectPolicy": map[string]any{"nodeMemoryCollectPolicy": memory}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	// counts waits for a report from now on in which prod's use is within [from, to], and returns the node's.
	counts := func(what string, from, to float64) (whole float64) {
		t.Helper()
		old := len(n.reported(t))
		eventually(t, 90*time.Second, func() error {
			if len(n.reported(t)) == old {
				return fmt.Errorf("%s: nothing was reported", what)
			}
			got, err := n.c.Admin().Get(t.Context(), reports+"/"+n.k.Node)
			if err != nil {
				return err
			}
			whole = amount(t, got.Str("status", "nodeMetric", "nodeUsage", "resources", "memory"))
			list, _ := got.At("status", "podsMetric").([]any)
			for i := range list {
				if got.Str("status", "podsMetric", i, "name") != "prod" {
					continue
				}
				if used := amount(t, got.Str("status", "podsMetric", i, "podUsage", "resources", "memory")); used < from || used > to {
					return fmt.Errorf("%s: prod uses %.1f MiB, want %.0f to %.0f", what, used/mib, from/mib, to/mib)
				}
				return nil
			}
			return fmt.Errorf("%s: prod is not in the report", what)
		})
		return whole
	}
	without := counts("without page cache", 0, 16*mib)
	// The mean of a minute, in which it was written: some of it has to be there.
	policy("usageWithPageCache")
	with := counts("with page cache", 64*mib, cached+32*mib)
	policy(nil)
	after := counts("without it again", 0, 16*mib)
	if with < without+64*mib || with < after+64*mib {
		t.Errorf("memory of the node: %.0f MiB without page cache, %.0f with it, %.0f without", without/mib, with/mib, after/mib)
	}
	t.Logf("memory of the node: %.0f MiB without page cache, %.0f with it, %.0f without", without/mib, with/mib, after/mib)
	if err := os.Remove(file); err != nil {
		t.Error(err)
	}
}
