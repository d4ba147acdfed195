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
	n.scaled(t, "10000")
	n.normalize(t, "1.25")
	n.scaled(t, "8000")
	n.normalize(t, nil)
	n.scaled(t, "10000")
	n.up(t)
}

// scaled waits until quota and burst of the LS container are as large.
func (n *governed) scaled(t *testing.T, quota string) {
	t.Helper()
	eventually(t, 60*time.Second, func() error { return n.limits(n.ls, quota, quota) })
}

// normalize has the Node's annotation tell a ratio, nil for none.
func (n *governed) normalize(t *testing.T, ratio any) {
	t.Helper()
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"node.koordinator.sh/cpu-normalization-ratio": ratio}}}
	if _, err := n.c.Admin().Patch(t.Context(), "/api/v1/nodes/"+n.k.Node, cluster.MergePatch, patch); err != nil {
		t.Fatal(err)
	}
}

// limits is an error unless a pod's container has this quota and this burst, in µs.
func (n *governed) limits(pod cluster.Object, quota, burst string) error {
	return errors.Join(
		n.held(pod, "cpu", "cpu.cfs_quota_us="+quota, "cpu.max="+quota+" 100000"),
		n.held(pod, "cpu", "cpu.cfs_burst_us="+burst, "cpu.max.burst="+burst))
}
