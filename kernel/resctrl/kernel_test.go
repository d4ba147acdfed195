// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package resctrl

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

// TestKernel works on the machine's own resctrl filesystem where there is one (the lab's guests have cache allocation),
// in groups of its own; elsewhere it sees that Info says so, and leaves the rest to them.
func TestKernel(t *testing.T) {
	t.Parallel()
	fs := FS("/sys/fs/resctrl")
	rdt, err := fs.Info(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !rdt.Mounted {
		if rdt.Why == "" || rdt.L3 || rdt.MB {
			t.Errorf("not mounted: %+v", rdt)
		}
		kerneltest.LeaveToVM(t, kerneltest.NotMounted("resctrl"))
	}
	if !rdt.L3 {
		kerneltest.LeaveToVM(t, kerneltest.NoFile("/sys/fs/resctrl/info/L3", unix.RDTGROUP_SUPER_MAGIC))
	}
	if len(rdt.L3IDs) == 0 || rdt.Closids < 2 {
		t.Fatalf("cache allocation without caches or classes: %+v", rdt)
	}
	group := "koord-rt-test-" + strconv.Itoa(os.Getpid())
	if created, err := fs.EnsureGroup(group); err != nil || !created {
		t.Fatalf("create: %v, %v", created, err)
	}
	t.Cleanup(func() {
		if err := fs.RemoveGroup(group); err != nil {
			t.Error(err)
		}
	})
	checkSchemata(t, fs, group, rdt.L3IDs[0])
	checkTasks(t, fs, group)
	checkExhaustion(t, fs, group, rdt.Closids)
}

func checkSchemata(t *testing.T, fs FS, group string, id int) {
	t.Helper()
	rest, err := fs.Schemata(group)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if changed, err := fs.WriteSchemata(group, "L3", strconv.Itoa(id)+"=3"); err != nil || changed != want {
			t.Errorf("write: changed %v, %v; want %v", changed, err, want)
		}
	}
	now, err := fs.Schemata(group)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range now {
		old, _ := rest.Line(l.Resource)
		for _, e := range l.Entries {
			want, _ := old.Get(e.ID)
			if l.Resource == "L3" && e.ID == id {
				want = "3"
			}
			if !sameValue(l.Resource, e.Value, want) {
				t.Errorf("%s of %d is %s, want %s", l.Resource, e.ID, e.Value, want)
			}
		}
	}
	// sparse_masks appeared in Linux 6.7; before, Intel's masks are contiguous and AMD's sparse ones went untold.
	if sparse, err := fs.infoInt("L3", "sparse_masks"); err == nil && sparse == 1 {
		return
	}
	_, err = fs.WriteSchemata(group, "L3", strconv.Itoa(id)+"=5")
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "resctrl says") {
		t.Errorf("a mask with a hole: %v", err)
	}
}

func checkTasks(t *testing.T, fs FS, group string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess("/bin/cat", []string{"cat"}, &os.ProcAttr{Files: []*os.File{r}})
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer func() {
		w.Close()
		p.Wait() //nolint:errcheck // its exit says nothing
	}()
	const gone = 1<<22 - 1 // beyond what a test machine reaches
	if err := fs.MoveTasks(group, gone, p.Pid); err != nil {
		t.Error(err)
	}
	if tids, err := fs.Tasks(group); err != nil || !slices.Equal(tids, []int{p.Pid}) {
		t.Errorf("tasks %v, %v", tids, err)
	}
	if in, err := fs.InGroup("", p.Pid); err != nil || in {
		t.Errorf("still in the root group: %v, %v", in, err)
	}
}

// checkExhaustion makes groups until the hardware has no class left.
func checkExhaustion(t *testing.T, fs FS, group string, closids int) {
	t.Helper()
	var err error
	for i := 0; i <= closids && err == nil; i++ {
		name := group + "-" + strconv.Itoa(i)
		if _, err = fs.EnsureGroup(name); err == nil {
			t.Cleanup(func() {
				if err := fs.RemoveGroup(name); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "is left") {
		t.Errorf("one group more than there are classes: %v", err)
	}
}
