// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package resctrl

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	rdtdata "github.com/intel/goresctrl/test/data"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/node"
)

// recorded is the path of a resctrl tree in goresctrl's module. Path takes what the compiler says of its file, which -trimpath
// makes relative to the module cache.
func recorded(t *testing.T, name string) string {
	t.Helper()
	path := rdtdata.Path(name)
	if filepath.IsAbs(path) {
		return path
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatalf("go env: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(cache)), path)
}

// TestInfoOfRecordedMachines reads the resctrl trees that goresctrl's authors recorded on real machines.
func TestInfoOfRecordedMachines(t *testing.T) {
	t.Parallel()
	four := []int{0, 1, 2, 3}
	for name, want := range map[string]node.RDT{
		"resctrl.full": {Mounted: true, L3: true, L3CBM: 0xfffff, L3MinBits: 1, L3IDs: four, Closids: 8,
			MB: true, MBMin: 10, MBGran: 10, MBMax: 100, MBIDs: four, Mon: true},
		"resctrl.nomb":     {Mounted: true, L3: true, L3CBM: 0xfffff, L3MinBits: 2, L3IDs: four, Closids: 16, Mon: true},
		"resctrl.nomb.cdp": {Mounted: true, L3: true, L3CDP: true, L3CBM: 0xfffff, L3MinBits: 1, L3IDs: four, Closids: 8, Mon: true},
		"resctrl.l2":       {Mounted: true, Why: "resctrl is mounted, but without L3 cache or memory bandwidth allocation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := FS(recorded(t, name)).Info(nil)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
	got, err := FS(recorded(t, "resctrl.nol3.mbps")).Info([]string{"mba_MBps"})
	if err != nil || got.L3 || !got.MB || got.MBUnit != node.MBMBps || got.MBMax != mbpsMax {
		t.Errorf("software controller: %+v, %v", got, err)
	}
}

// fake writes a tree with two caches; extra files replace or add to it.
func fake(t *testing.T, extra map[string]string) FS {
	t.Helper()
	files := map[string]string{
		"schemata": "    MB:0=100;1=100\n    L3:0=fff;1=fff\n", "tasks": "1\n2\n", "info/last_cmd_status": "ok\n",
		"info/L3/cbm_mask": "fff\n", "info/L3/min_cbm_bits": "2\n", "info/L3/num_closids": "16\n",
		"info/MB/min_bandwidth": "10\n", "info/MB/bandwidth_gran": "10\n", "info/MB/delay_linear": "1\n", "info/MB/num_closids": "8\n",
		"BE/schemata": "    MB:0=100;1=100\n    L3:0=fff;1=fff\n", "BE/tasks": "3\n", "BE/mon_groups/p1/tasks": "",
		"mon_groups/r1/tasks": "",
	}
	for k, v := range extra {
		files[k] = v
	}
	return FS(kerneltest.Lay(t, files, ""))
}

func TestInfo(t *testing.T) {
	t.Parallel()
	rdt, err := fake(t, nil).Info(nil)
	if err != nil || rdt.Closids != 8 || rdt.L3MinBits != 2 || rdt.MBUnit != node.MBPercent || rdt.Mon {
		t.Errorf("got %+v, %v", rdt, err)
	}
	rdt, err = fake(t, map[string]string{"info/MB/delay_linear": "0\n", "info/MB/min_bandwidth": "0\n", "info/MB/bandwidth_gran": "1\n",
		"schemata": "MB:0=2048;1=2048\nL3:0=fff;1=fff\n"}).Info(nil)
	if err != nil || rdt.MBUnit != node.MBAbsolute || rdt.MBMax != 2048 {
		t.Errorf("absolute bandwidth: %+v, %v", rdt, err)
	}
	rdt, err = FS(t.TempDir()).Info(nil)
	if err != nil || rdt.Mounted || rdt.Why == "" {
		t.Errorf("not mounted: %+v, %v", rdt, err)
	}
	if rdt, err := fake(t, map[string]string{"info/L3/cbm_mask": "wide"}).Info(nil); err == nil || rdt.L3 || !rdt.MB {
		t.Errorf("bad mask: %+v, %v", rdt, err)
	}
}

func TestWriteSchemata(t *testing.T) {
	t.Parallel()
	fs := fake(t, nil)
	for _, c := range []struct {
		resource, line, want string
		changed              bool
	}{
		{"L3", "L3:0=0f;1=fff", "MB:0=100;1=100\nL3:0=0f;1=fff\n", true},
		{"L3", "0=f", "MB:0=100;1=100\nL3:0=0f;1=fff\n", false},
		{"MB", "1=20", "MB:0=100;1=20\nL3:0=0f;1=fff\n", true},
	} {
		changed, err := fs.WriteSchemata("BE", c.resource, c.line)
		if err != nil || changed != c.changed {
			t.Fatalf("%s %s: %v, %v", c.resource, c.line, changed, err)
		}
		if s, err := fs.Schemata("BE"); err != nil || s.String() != c.want {
			t.Errorf("after %s %s: %q, %v", c.resource, c.line, s, err)
		}
	}
	if s, err := fs.Schemata(""); err != nil || s.String() != "MB:0=100;1=100\nL3:0=fff;1=fff\n" {
		t.Errorf("root group: %q, %v", s, err)
	}
}

func TestWriteSchemataRefuses(t *testing.T) {
	t.Parallel()
	fs := fake(t, map[string]string{"info/last_cmd_status": "mask f00f has non-consecutive 1-bits\n"})
	for _, c := range [][3]string{{"BE", "L2", "0=f"}, {"BE", "L3", "7=f"}, {"BE", "L3", "0"}, {"none", "L3", "0=f"}, {"../BE", "L3", "0=f"}, {"BE", "L3", "0=f;0=1"}} {
		if changed, err := fs.WriteSchemata(c[0], c[1], c[2]); err == nil || changed {
			t.Errorf("%v: %v, %v", c, changed, err)
		}
	}
	err := fs.explain(errors.New("invalid argument"))
	if !strings.Contains(err.Error(), "non-consecutive") {
		t.Errorf("the kernel's words are missing: %v", err)
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	fs := fake(t, nil)
	created, err := fs.EnsureGroup("LS")
	again, err2 := fs.EnsureGroup("LS")
	if !created || again || err != nil || err2 != nil {
		t.Errorf("ensure: %v, %v; %v, %v", created, err, again, err2)
	}
	if err := errors.Join(fs.RemoveGroup("LS"), fs.RemoveGroup("LS")); err != nil {
		t.Errorf("remove: %v", err)
	}
	if created, err := fs.EnsureMon("", "p9"); !created || err != nil {
		t.Errorf("ensure monitoring group: %v, %v", created, err)
	}
	if names, err := fs.MonGroups(""); err != nil || !slices.Contains(names, "p9") {
		t.Errorf("monitoring groups of the root: %q, %v", names, err)
	}
	if names, err := fs.MonGroups("gone"); err != nil || len(names) > 0 {
		t.Errorf("monitoring groups of none: %q, %v", names, err)
	}
	if err := fs.RemoveMon("", "p9"); err != nil {
		t.Errorf("remove monitoring group: %v", err)
	}
	for _, err := range []error{fs.RemoveGroup(""), fs.RemoveGroup("info"), fs.RemoveMon("BE", "../../x"), fs.RemoveMon("BE", "")} {
		if !errors.Is(err, ErrName) {
			t.Errorf("a name that is none: %v", err)
		}
	}
}

func TestTasks(t *testing.T) {
	t.Parallel()
	fs := fake(t, nil)
	if err := fs.MoveTasks("BE", 77, 78); err != nil {
		t.Fatal(err)
	}
	if got, err := fs.Tasks("BE"); err != nil || !slices.Equal(got, []int{3, 77, 78}) {
		t.Errorf("tasks %v, %v", got, err)
	}
	if in, err := fs.InGroup("BE", 78); err != nil || !in {
		t.Errorf("78 is in BE: %v, %v", in, err)
	}
	if in, err := fs.InGroup("", 78); err != nil || in {
		t.Errorf("78 is in the root group: %v, %v", in, err)
	}
	if err := fs.AddMon("BE", "p1", 78); err != nil {
		t.Error(err)
	}
	if got, err := fs.MonTasks("BE", "p1"); err != nil || !slices.Equal(got, []int{78}) {
		t.Errorf("monitored %v, %v", got, err)
	}
	if err := fs.MoveTasks("BE", 0, 79); err == nil {
		t.Error("0 would move ourselves")
	}
	if in, err := fs.InGroup("BE", 79); err != nil || !in {
		t.Errorf("a bad id stops the good ones: %v, %v", in, err)
	}
	if err := fs.MoveTasks("none", 5); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no group: %v", err)
	}
}
