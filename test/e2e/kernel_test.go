// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// guestPackage names tests that look at the real kernel: v2 have to run and pass in the VM with cgroup v2, v1 in that with v1. The
// others of the package, on fake trees, would take an emulated machine minutes and show nothing of its kernel.
type guestPackage struct{ v2, v1 []string }

// kernelPackages by folder. Every test that may be left to the VM is here (TestLeftToVM of test/arch).
var kernelPackages = map[string]guestPackage{
	"kernel/apply": {
		v2: []string{"TestRealV2", "TestRealV2Below", "TestRealV2Limits", "TestKeptRealV2", "TestReadyRealV2"}, v1: []string{"TestRealV1", "TestRealV1Below", "TestRealV1Limits", "TestStartRealV1", "TestKeptRealV1", "TestReadyRealV1"},
	},
	"kernel/perf":      {v2: []string{"TestThisHost", "TestCgroupOnThisHost"}},
	"kernel/probe":     {v2: []string{"TestProbeThisHost", "TestProbeControllerlessV2"}, v1: []string{"TestProbeThisHost"}},
	"kernel/proc":      {v2: []string{"TestHostTables", "TestThisMachine", "TestThisThread", "TestTheseCPUs"}},
	"kernel/psi":       {v2: []string{"TestKernelFires", "TestOldStallsDoNotFire", "TestManyWatchesCloseCleanly"}},
	"kernel/reclaim":   {v2: []string{"TestKernel"}},
	"kernel/resctrl":   {v2: []string{"TestKernel"}},
	"kernel/sockdiag":  {v2: []string{"TestKernel", "TestOwnNamespace"}},
	"kernel/sys":       {v2: []string{"TestGPUs", "TestThisHostsNodes"}},
	"kernel/taskstats": {v2: []string{"TestKernel"}},
	"kernel/tc": {v2: []string{
		"TestRestoreFromTheLedger", "TestShapeAndRestore", "TestWhatSomebodyElseHasSetUp", "TestForeignIngressFilter", "TestPacketsMeetTheirClass",
		"TestSync", "TestManyPods",
	}},
	"kernel/usage": {v2: []string{"TestThisHost"}, v1: []string{"TestThisHost"}},
	"koordlet/internal/collect": {
		v2: []string{"TestThisHost", "TestSteadyScansDoNotAllocate"}, v1: []string{"TestThisHost", "TestSteadyScansDoNotAllocate"},
	},
}

// guestTests is where a guest has the packages' folders, with their testdata. envCgroup tells it which version it was booted with.
const (
	guestTests = "/disk/tests"
	envCgroup  = "KOORD_RT_CGROUP"
)

// TestGuestKernelPackages runs those tests inside the VM.
func TestGuestKernelPackages(t *testing.T) {
	v1 := os.Getenv(envCgroup) == "1"
	needs := []string{"/sys/fs/resctrl/schemata", "/sys/fs/cgroup/cgroup.controllers"}
	if v1 {
		needs = []string{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/cpuset/cpuset.cpus"}
	}
	for _, file := range needs {
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("the tests would pass without looking: %v", err)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(kernelPackages)) {
		tests := kernelPackages[dir].v2
		if v1 {
			tests = kernelPackages[dir].v1
		}
		if len(tests) > 0 {
			t.Run(dir, func(t *testing.T) { runInGuest(t, dir, tests) })
		}
	}
}

// runInGuest runs tests of the package in its folder, as go test does. One that is skipped did not pass.
func runInGuest(t *testing.T, dir string, tests []string) {
	t.Helper()
	folder := path.Join(guestTests, dir)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin(path.Base(dir)+".test"), "-test.v", "-test.run=^("+strings.Join(tests, "|")+")$")
	cmd.Dir = folder
	raw, err := cmd.CombinedOutput()
	out := string(raw)
	if err != nil {
		t.Errorf("%v\n%s", err, tail(out, 4000))
	}
	for _, test := range tests {
		if !strings.Contains(out, "--- PASS: "+test+" ") {
			t.Errorf("%s did not pass:\n%s", test, tail(out, 2000))
		}
	}
	if strings.Contains(out, "--- SKIP: ") {
		t.Errorf("a part stepped aside:\n%s", tail(out, 2000))
	}
}
