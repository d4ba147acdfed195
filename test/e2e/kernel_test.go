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
// cgroup v2 nor resctrl, so the tests that the value names run in the VM, where they must not step aside.
var kernelPackages = map[string][]string{
	"resctrl": {"TestKernel"}, "probe": {"TestProbeThisHost"}, "apply": {"TestRealV2", "TestRealV2Limits"},
}

// TestGuestKernelPackages runs those tests inside the VM.
func TestGuestKernelPackages(t *testing.T) {
	for _, file := range []string{"/sys/fs/resctrl/schemata", "/sys/fs/cgroup/cgroup.controllers"} {
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("the tests would pass without looking: %v", err)
		}
	}
	for name, must := range kernelPackages {
		raw, err := exec.Command(bin(name+".test"), "-test.v", "-test.run=^("+strings.Join(must, "|")+")$").CombinedOutput()
		out := string(raw)
		if err != nil {
			t.Errorf("kernel/%s: %v\n%s", name, err, tail(out, 4000))
		}
		for _, test := range must {
			if !strings.Contains(out, "--- PASS: "+test+" ") {
				t.Errorf("kernel/%s: no test %s passed:\n%s", name, test, tail(out, 2000))
			}
		}
	}
}
