// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package probe

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
)

func TestParseRelease(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]int{
		"6.18.44-fc-v669":       {6, 18},
		"4.19.91-26.an7.x86_64": {4, 19},
		"7.2-rc1":               {7, 2},
		"5.10":                  {5, 10},
	} {
		if major, minor, err := ParseRelease(in); err != nil || major != want[0] || minor != want[1] {
			t.Errorf("ParseRelease(%q) = %d.%d, %v", in, major, minor, err)
		}
	}
	for _, bad := range []string{"", "6", "six.1", "6.", "6.x", "-1.2", "99999999.1"} {
		if major, minor, err := ParseRelease(bad); err == nil {
			t.Errorf("ParseRelease(%q) = %d.%d", bad, major, minor)
		}
	}
}

func FuzzParseRelease(f *testing.F) {
	f.Add("6.18.44-fc")
	f.Add(".")
	f.Fuzz(func(t *testing.T, s string) {
		major, minor, err := ParseRelease(s)
		if err == nil && !strings.HasPrefix(strings.TrimLeft(s, "0"), strings.TrimLeft(strconv.Itoa(major), "0")) || minor < 0 {
			t.Errorf("%d.%d from %q", major, minor, s)
		}
	})
}

func TestAbsence(t *testing.T) {
	t.Parallel()
	k := &node.Kernel{Major: 4, Minor: 19, Cgroup: node.CgroupV2}
	for _, c := range [][3]string{
		{"cpu.max.burst", "5.14", "no cpu.max.burst: it appeared in Linux 5.14; this is 4.19"},
		{"io.latency", "4.19", "no io.latency: this Linux 4.19 was built without it"},
		{"cpu.bvt_warp_ns", "Anolis", "no cpu.bvt_warp_ns: on cgroup v2 only Anolis kernels have it"},
		{"x", "", "no x"},
	} {
		if got := absence(c[0], c[1], k); got != c[2] {
			t.Errorf("got %q, want %q", got, c[2])
		}
	}
}

func TestDetectFormula(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shares  unit.Shares
		weight  unit.Weight
		formula unit.WeightFormula
		ok      bool
	}{
		{1024, 39, unit.Linear, true},
		{1024, 100, unit.Quadratic, true},
		{1024, 50, unit.Linear, false},
		{2, 1, unit.Linear, false},
		{262144, 10000, unit.Linear, false},
		{2048, 79, unit.Linear, true},
		{2048, 174, unit.Quadratic, true},
		{0, 0, unit.Linear, false},
	} {
		if f, ok := DetectFormula(c.shares, c.weight); ok != c.ok || ok && f != c.formula {
			t.Errorf("DetectFormula(%d, %d) = %s, %v", c.shares, c.weight, f, ok)
		}
	}
}

func TestKubeletManagers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if cpu, mem, err := KubeletManagers(dir+"/cpu_manager_state", dir+"/memory_manager_state"); cpu || mem || err != nil {
		t.Errorf("without a kubelet: %v, %v, %v", cpu, mem, err)
	}
	for name, content := range map[string]string{"cpu_manager_state": `{"policyName":"none"}`, "memory_manager_state": `{"policyName":"Static"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if cpu, mem, err := KubeletManagers(dir+"/cpu_manager_state", dir+"/memory_manager_state"); cpu || !mem || err != nil {
		t.Errorf("memory manager only: %v, %v, %v", cpu, mem, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cpu_manager_state"), []byte("{half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if cpu, _, err := KubeletManagers(dir+"/cpu_manager_state", dir+"/memory_manager_state"); !cpu || err == nil {
		t.Errorf("an unreadable checkpoint counts as static: %v, %v", cpu, err)
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(`{"policyName":"static","defaultCpuSet":"0-3"}`))
	f.Add([]byte(`{"policyName":7}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if policy, err := parsePolicy(b); err == nil && policy == "" {
			t.Errorf("an empty policy from %q", b)
		}
	})
}

// enable switches on only what is off and available, and close switches off only that.
func TestSampleControllers(t *testing.T) {
	t.Parallel()
	roots, _ := fakeRoots(t, map[string]string{"cg/cgroup.controllers": "cpuset cpu io memory hugetlb", "cg/cgroup.subtree_control": "cpu memory cpuset"})
	s := &sample{rootDir: roots.Cgroup}
	if err := s.enable(); err != nil || !slices.Equal(s.enabled, []string{"io"}) {
		t.Fatalf("enabled %v, %v", s.enabled, err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if last, err := root.Read(roots.Cgroup + "/cgroup.subtree_control"); err != nil || last != "-io" {
		t.Errorf("last write %q, %v", last, err)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	parent, proc := t.TempDir(), t.TempDir()
	for _, dir := range []string{parent + "/" + samplePrefix + "7", parent + "/" + samplePrefix + "8", parent + "/" + samplePrefix + "x", parent + "/kubepods", proc + "/8"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sweep(parent, proc)
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{samplePrefix + "8", samplePrefix + "x", "kubepods"}; !slices.Equal(names, want) {
		t.Errorf("left %v, want %v", names, want)
	}
}
