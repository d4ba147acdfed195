// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// The older runtimes of the matrix have NRI 0.8: no scheduler field, no UpdatePodSandbox event, CDI dropped, or refused
// unless enabled.
// What the spec cannot carry there is written at StartContainer, so the same scenarios hold.

func TestCompatContainerd20(t *testing.T) {
	runScenarios(t, rigOptions{containerd: parts.Containerd20})
}

func TestCompatContainerd17(t *testing.T) {
	runScenarios(t, rigOptions{containerd: parts.Containerd17})
}

// TestCompatContainerd17CDI: with enable_cdi, which the lab's 1.7 has, CDI devices of an adjustment are applied there too;
// containerd does not tell, so koord-nri has to be told.
func TestCompatContainerd17CDI(t *testing.T) {
	r := newRig(t, rigOptions{containerd: parts.Containerd17})
	r.extra = map[string]any{"cdi": "on"}
	lifecycleCDI(r)
}
