// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package wire

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
	"github.com/koord-rt/koord-rt/model/plan"
)

func groups(t *testing.T) (Groups, *kerneltest.Tree) {
	t.Helper()
	tree := kerneltest.New(t, "6.12")
	tree.Resctrl(t, true, true)
	tree.Group(t, "BE")
	// Process 7 has two threads, process 8 has ended.
	for _, tid := range []string{"7", "9"} {
		if err := os.MkdirAll(filepath.Join(tree.Roots.Proc, "7", "task", tid), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Groups{FS: resctrl.FS(tree.Roots.Resctrl), Proc: proc.FS(tree.Roots.Proc)}, tree
}

// TestMissingThreads: every thread of a living process that is not in the group yet, and nothing of one that has ended.
func TestMissingThreads(t *testing.T) {
	t.Parallel()
	g, _ := groups(t)
	for name, c := range map[string]struct {
		in   []int
		want int
	}{"none is in": {nil, 2}, "one is in": {[]int{7}, 1}, "all are in": {[]int{7, 9}, 0}} {
		if got := g.missing([]int{7, 8}, c.in); len(got) != c.want {
			t.Errorf("%s: missing %v, want %d", name, got, c.want)
		}
	}
}

func TestSchemata(t *testing.T) {
	t.Parallel()
	g, tree := groups(t)
	if err := g.SetSchemata("BE", "L3:0=3f;1=3f"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(tree.Roots.Resctrl + "/BE/schemata")
	if err != nil || !strings.Contains(string(data), "L3:0=3f;1=3f") {
		t.Errorf("the file has %q, %v", data, err)
	}
	if err := g.SetSchemata("BE", "nonsense"); err == nil {
		t.Error("a line that is none was accepted")
	}
	if _, err := g.Schemata("absent"); err == nil {
		t.Error("a group that does not exist has a file")
	}
}

// TestMoveOfNobody: a process that has ended is no error and nothing is written.
func TestMoveOfNobody(t *testing.T) {
	t.Parallel()
	g, _ := groups(t)
	if err := g.MoveTasks("BE", []int{8}); err != nil {
		t.Error(err)
	}
	if in, err := g.InMon("BE", "pod", 7); in || err != nil {
		t.Errorf("a monitoring group that does not exist: %v, %v", in, err)
	}
}

// systemd writes to cpu.idle and to lists of CPUs on cgroup v2 alone, and only units have properties. What a vendor's kernel protects on v1 must
// not become one: the unit's limit would be another property then.
func TestUnitsHave(t *testing.T) {
	t.Parallel()
	const unit = "/kubepods.slice/kubepods-pod1.slice"
	for _, c := range []struct {
		v1     bool
		cgroup string
		knob   plan.Knob
		want   bool
	}{
		{false, unit, plan.CPUIdle, true}, {true, unit, plan.CPUIdle, false}, {true, unit, plan.CPUShares, true},
		{true, unit, plan.MemoryMin, false}, {false, unit, plan.MemoryMin, true}, {true, unit, plan.CPUSetCPUs, false}, {true, unit, plan.MemoryLimit, true},
		{false, unit, plan.CPUBurst, false}, {false, "/kubepods/pod1", plan.CPUIdle, false},
	} {
		if got := (Units{V1: c.v1}).Has(c.cgroup, c.knob); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
