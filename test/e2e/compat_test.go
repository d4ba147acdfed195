// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// The older runtimes of the matrix have NRI 0.8: no scheduler field, no UpdatePodSandbox event, CDI dropped or refused.
// What the spec cannot carry there is written at StartContainer, so the same scenarios hold.

func TestCompatContainerd20(t *testing.T) {
	runScenarios(t, rigOptions{containerd: parts.Containerd20})
}

func TestCompatContainerd17(t *testing.T) {
	runScenarios(t, rigOptions{containerd: parts.Containerd17})
}
