// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/vm"
)

func TestVMFixNode(t *testing.T) {
	inVM(t, vm.Options{Kernel: "6.12", Flavour: vm.Systemd, Timeout: 4 * time.Minute}, "^TestGuestSystemd(Conformance|Scenarios)$/(llc|memory|core|cpuset-lsr)")
}
