// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"errors"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// ratio: the ratio that the Node's annotation tells divides the quota of an LS container, and takes the burst with it, which the kernel
// keeps no larger. Without the annotation the container has again what its limit says.
func (n *governed) ratio(t *testing.T) {
	tell := func(ratio any) {
		t.Helper()
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"node.koordinator.sh/cpu-normalization-ratio": ratio}}}
		if _, err := n.c.Admin().Patch(t.Context(), "/api/v1/nodes/"+n.k.Node, cluster.MergePatch, patch); err != nil {
			t.Fatal(err)
		}
	}
	n.scaled(t, "10000")
	tell("1.25")
	n.scaled(t, "8000")
	tell(nil)
	n.scaled(t, "10000")
	n.up(t)
}

// scaled waits until quota and burst of the LS container are as large.
func (n *governed) scaled(t *testing.T, quota string) {
	t.Helper()
	eventually(t, 60*time.Second, func() error {
		return errors.Join(
			n.held(n.ls, "cpu", "cpu.cfs_quota_us="+quota, "cpu.max="+quota+" 100000"),
			n.held(n.ls, "cpu", "cpu.cfs_burst_us="+quota, "cpu.max.burst="+quota))
	})
}
