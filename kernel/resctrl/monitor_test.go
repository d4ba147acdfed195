// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package resctrl_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
)

func counted(n uint64) resctrl.Count { return resctrl.Count{State: resctrl.Counted, Value: n} }

func TestParseCount(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]resctrl.Count{
		"1277952\n": counted(1277952), "0": counted(0),
		"Unavailable\n": {State: resctrl.Unavailable}, "Error\n": {State: resctrl.Failed}, "Unassigned": {State: resctrl.Unassigned},
	} {
		if got, err := resctrl.ParseCount(in); err != nil || got != want {
			t.Errorf("ParseCount(%q) = %+v, %v", in, got, err)
		}
	}
	for _, bad := range []string{"", "-1", "unavailable", "1 2", "18446744073709551616"} {
		if got, err := resctrl.ParseCount(bad); err == nil || got != (resctrl.Count{}) {
			t.Errorf("ParseCount(%q) = %+v, %v", bad, got, err)
		}
	}
}

func FuzzParseCount(f *testing.F) {
	f.Add("123\n")
	f.Add("Unavailable")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := resctrl.ParseCount(s)
		if (err == nil) != (c.State != resctrl.NoFile) || c.State != resctrl.Counted && c.Value != 0 {
			t.Errorf("ParseCount(%q) = %+v, %v", s, c, err)
		}
	})
}

func TestMonitor(t *testing.T) {
	t.Parallel()
	tree := kerneltest.New(t, "6.12")
	tree.Resctrl(t, false, true)
	tree.Group(t, "BE")
	fs := resctrl.FS(tree.Roots.Resctrl)
	put := func(file, content string) {
		path := tree.Roots.Resctrl + "/" + file
		if err := os.MkdirAll(path[:strings.LastIndex(path, "/")], 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("BE/mon_data/mon_L3_00/llc_occupancy", "1277952\n")
	put("BE/mon_data/mon_L3_00/mbm_total_bytes", "Unavailable\n")
	put("BE/mon_data/mon_L3_01/mbm_local_bytes", "Error\n")
	put("BE/mon_data/mon_L3_10/llc_occupancy", "7\n") // ids have gaps, and 10 comes after 2
	put("BE/mon_data/mon_L3_2/llc_occupancy", "5\n")
	put("BE/mon_data/mon_L3_00/mon_sub_L3_00/llc_occupancy", "9\n")
	put("BE/mon_data/mon_L2_00/llc_occupancy", "9\n")
	got, err := fs.Monitor("BE", "")
	want := []resctrl.Domain{
		{ID: 0, Occupancy: counted(1277952), Local: counted(0), Total: resctrl.Count{State: resctrl.Unavailable}},
		{ID: 1, Occupancy: counted(0), Local: resctrl.Count{State: resctrl.Failed}, Total: counted(0)},
		{ID: 2, Occupancy: counted(5)},
		{ID: 10, Occupancy: counted(7)},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	put("BE/mon_groups/pod/mon_data/mon_L3_00/llc_occupancy", "nonsense")
	got, err = fs.Monitor("BE", "pod")
	if err == nil || !strings.Contains(err.Error(), "mon_groups/pod/mon_data/mon_L3_00/llc_occupancy") || len(got) != 1 || got[0].Occupancy.State != resctrl.NoFile {
		t.Errorf("nonsense: %+v, %v", got, err)
	}
	if got, err := fs.Groups(); err != nil || !slices.Equal(got, []string{"BE"}) {
		t.Errorf("groups %v, %v", got, err)
	}
	if got, err := resctrl.FS(t.TempDir() + "/none").Groups(); got != nil || err != nil {
		t.Errorf("not mounted: groups %v, %v", got, err)
	}
	if got, err := fs.Monitor("gone", ""); got != nil || err != nil {
		t.Errorf("no group: %v, %v", got, err)
	}
	if _, err := fs.Monitor("a/b", ""); err == nil {
		t.Error("a path was taken for a name")
	}
}
