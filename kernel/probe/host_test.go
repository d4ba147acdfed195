// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package probe

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// TestProbeThisHost asks the running kernel and compares with what the tree shows. Not parallel with other probes of
// this process: they share the probe cgroup's name.
func TestProbeThisHost(t *testing.T) {
	roots := root.Default()
	k, topology, memory, err := Probe(t.Context(), roots, Options{KubeletCPUState: t.TempDir() + "/cpu", KubeletMemoryState: t.TempDir() + "/memory"})
	if err != nil && os.Geteuid() == 0 {
		t.Fatal(err)
	}
	if topology == nil || topology.All().Empty() || memory < 64<<20 || len(k.Disks) == 0 {
		t.Errorf("topology %v, memory %d, disks %v", topology, memory, k.Disks)
	}
	want := node.CgroupV1
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		want = node.CgroupV2
	}
	if k.Cgroup != want {
		t.Errorf("cgroup v%d, want v%d", k.Cgroup, want)
	}
	checkKnobs(t, &k)
	if left := leftovers(t, roots); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// checkKnobs needs no more than every kernel of the last ten years has, and the files that only vendors' have.
func checkKnobs(t *testing.T, k *node.Kernel) {
	t.Helper()
	for _, knob := range []plan.Knob{plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.CPUSetCPUs, plan.CPUSetMems, plan.MemoryLimit, plan.OOMScoreAdj, plan.SchedPolicy, plan.Env} {
		if !k.Has(knob) {
			t.Errorf("%s: %s", knob, k.Knobs[knob].Why)
		}
	}
	if k.AtLeast(5, 15) && (!k.Has(plan.CPUBurst) || !k.Has(plan.CPUIdle)) {
		t.Errorf("burst: %s; idle: %s", k.Knobs[plan.CPUBurst].Why, k.Knobs[plan.CPUIdle].Why)
	}
	if _, err := os.Stat("/proc/sys/kernel/sched_group_identity_enabled"); errors.Is(err, os.ErrNotExist) && k.Has(plan.CPUBvt) {
		t.Error("bvt on a kernel without group identity")
	}
	if k.Cgroup == node.CgroupV1 && (k.Has(plan.IOLatency) || k.RecursiveProt) {
		t.Error("v2 only things on v1")
	}
	for knob := plan.KnobNone + 1; knob < plan.NumKnobs; knob++ {
		s := k.Knobs[knob]
		if s.OK != (s.Why == "") || s.Degraded != "" && !s.OK {
			t.Errorf("%s: %+v", knob, s)
		}
	}
}

func leftovers(t *testing.T, roots root.Roots) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"/", "/*/"} {
		found, err := filepath.Glob(roots.Cgroup + pattern + samplePrefix + "*")
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range found {
			// Probes of other processes may be at work.
			if strings.HasSuffix(dir, samplePrefix+strconv.Itoa(os.Getpid())) {
				all = append(all, dir)
			}
		}
	}
	return all
}

// A hybrid node's cgroup2 mount has no controllers: a real v2 tree where every knob is missing for a reason.
func TestProbeControllerlessV2(t *testing.T) {
	roots := root.Default()
	roots.Cgroup = kerneltest.Unified(t)
	have, err := root.Read(roots.Cgroup + "/cgroup.controllers")
	if err != nil {
		t.Fatal(err)
	}
	k, _, _, err := Probe(t.Context(), roots, Options{KubeletCPUState: t.TempDir() + "/cpu", KubeletMemoryState: t.TempDir() + "/memory"})
	kerneltest.Permitted(t, err, unix.CAP_DAC_OVERRIDE)
	if k.Cgroup != node.CgroupV2 {
		t.Fatalf("cgroup v%d", k.Cgroup)
	}
	for _, knob := range []plan.Knob{plan.CPUShares, plan.MemoryLimit, plan.CPUSetCPUs} {
		controller, _, _ := strings.Cut(knob.String(), ".")
		s := k.Knobs[knob]
		if s.OK != word(have, controller) || !s.OK && !strings.Contains(s.Why, "does not have the "+controller+" controller") {
			t.Errorf("%s with controllers %q: %+v", knob, have, s)
		}
	}
	if left := leftovers(t, roots); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
