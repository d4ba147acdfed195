// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"os"
	"testing"
)

// boots starts koordlet before its kubeconfig is written, as on a node that bootstraps: it runs, says what it waits for, and goes on by
// itself when the file is there.
func (n *governed) boots(t *testing.T) {
	t.Helper()
	later := n.kubeconfig + ".later"
	if err := os.Rename(n.kubeconfig, later); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	n.sees(t, `koord_rt_koordlet_source_state\{source="apiserver",state="degraded"\} 1`)
	n.sees(t, `koord_rt_koordlet_source_state\{source="node",state="degraded"\} 1`)
	n.up(t)
	if err := os.Rename(later, n.kubeconfig); err != nil {
		t.Fatal(err)
	}
	n.sees(t, `koord_rt_koordlet_source_state\{source="node",state="active"\} 1`)
	n.up(t)
}
