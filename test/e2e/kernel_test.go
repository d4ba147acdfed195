// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// kernelPackages are the packages whose tests look at the real kernel where it has what they need. The host has neither
// cgroup v2 nor resctrl, so the test that the value names runs in the VM, where it must not step aside.
var kernelPackages = map[string]string{"resctrl": "TestKernel", "probe": "TestProbeThisHost"}

// TestGuestKernelPackages runs those tests inside the VM.
func TestGuestKernelPackages(t *testing.T) {
	for _, file := range []string{"/sys/fs/resctrl/schemata", "/sys/fs/cgroup/cgroup.controllers"} {
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("the tests would pass without looking: %v", err)
		}
	}
	for name, must := range kernelPackages {
		out, err := exec.Command(bin(name+".test"), "-test.v", "-test.run=^"+must+"$").CombinedOutput()
		if err != nil {
			t.Errorf("kernel/%s: %v\n%s", name, err, tail(string(out), 4000))
		}
		if !strings.Contains(string(out), "--- PASS: "+must) {
			t.Errorf("kernel/%s: no test %s passed:\n%s", name, must, tail(string(out), 2000))
		}
	}
}
