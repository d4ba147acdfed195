// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// TestGuestScenarios runs every scenario that fits the VM: cgroup v2 (or v1 on 6.1), eight CPUs, two NUMA nodes, resctrl.
func TestGuestScenarios(t *testing.T) { runScenarios(t, rigOptions{}) }

// TestGuestSystemdScenarios runs them with systemd as PID 1 and the systemd cgroup driver, as production does.
func TestGuestSystemdScenarios(t *testing.T) { runScenarios(t, rigOptions{driver: kubelet.Systemd}) }
