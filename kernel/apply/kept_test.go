// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/plan"
)

func TestKeptRealV1(t *testing.T) { realV1(t).kept(t) }

func TestKeptRealV2(t *testing.T) { realV2(t).kept(t) }

// kept writes a container's burst several times through one open file, also when another container has taken the place of the first one.
func (r *realTree) kept(t *testing.T) {
	t.Helper()
	l := &ledger{}
	a, err := apply.New(apply.Options{FS: r.fs, Roots: root.Default(), Journal: l})
	if err != nil {
		t.Fatal(err)
	}
	target := r.ctr(plan.CPUBurst, 0).Target
	dir, err := r.fs.Dir(target, plan.CPUBurst)
	if err != nil {
		t.Fatal(err)
	}
	file, err := r.fs.Path(target, plan.CPUBurst)
	if err != nil {
		t.Fatal(err)
	}
	write := func(burst int64, want apply.Outcome, stands string) {
		t.Helper()
		res := a.Apply(t.Context(), plan.Plan{r.ctr(plan.CPUBurst, burst)}, 1)
		if got, err := root.Read(file); res[0].Outcome != want || got != stands || err != nil {
			t.Errorf("%d: %s, %v; the kernel has %s, want %s, %v", burst, res[0].Outcome, res[0].Err, got, stands, err)
		}
	}
	recorded := func(original string) {
		t.Helper()
		inode, err := root.Inode(dir)
		all := l.all()
		if last := all[len(all)-1]; err != nil || last.Inode != inode || len(last.Original) != 1 || last.Original[0] != original {
			t.Errorf("record %+v, want inode %d and the original %s; %v", last, inode, original, err)
		}
	}
	quota := func() {
		t.Helper()
		if res := a.Apply(t.Context(), plan.Plan{r.ctr(plan.CPUQuota, 60000)}, 1); res[0].Outcome != apply.Written {
			t.Fatal(res[0].Outcome, res[0].Err)
		}
	}
	other := t.TempDir() + "/other"
	if err := os.WriteFile(other, []byte("20000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	quota()
	open := descriptors(t)
	write(50000, apply.Written, "50000")
	recorded("0")
	write(30000, apply.Written, "30000")
	recorded("50000")
	if n := descriptors(t); n != open+1 {
		t.Errorf("%d descriptors are open, %d were: want one more", n, open)
	}

	// Another file in the place of the open one is what is read: it is the open one that is used.
	hidden := openAs(t, file)
	aside, err := unix.Dup(hidden)
	if err != nil {
		t.Fatal(err)
	}
	scratch, err := unix.Open(other, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	put := func(fd int) {
		t.Helper()
		if err := unix.Dup3(fd, hidden, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	put(scratch)
	write(20000, apply.Unchanged, "30000")
	put(aside)

	for _, err := range []error{os.Remove(dir), os.Mkdir(dir, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	quota()
	write(40000, apply.Written, "40000")
	recorded("0")
	write(10000, apply.Written, "10000")
	if n := descriptors(t); n != open+1 {
		t.Errorf("with another one in its place %d descriptors are open, %d were: want one more", n, open)
	}
	if err := a.Forget(target); err != nil || descriptors(t) != open {
		t.Errorf("forgotten: %d descriptors are open, %d were; %v", descriptors(t), open, err)
	}

	p := plan.Plan{r.ctr(plan.CPUBurst, 40000)}
	_, bad, release := a.Start(t.Context(), p, p, 1)
	if err := a.Forget(target); err != nil || bad != nil {
		t.Error(err, bad)
	}
	if release(); descriptors(t) != open {
		t.Errorf("forgotten during a start: %d descriptors are open, %d were", descriptors(t), open)
	}

	write(20000, apply.Written, "20000")
	next, err := apply.New(apply.Options{FS: r.fs, Roots: root.Default(), Journal: l})
	if err != nil {
		t.Fatal(err)
	}
	next.Inherit(a)
	if n := descriptors(t); n != open {
		t.Errorf("inherited from: %d descriptors are open, %d were", n, open)
	}
	if write(10000, apply.Written, "10000"); descriptors(t) != open {
		t.Error("whose successor is at work keeps a file")
	}
}

// openAs is this process's descriptor of a file.
func openAs(t *testing.T, file string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if at, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && at == file {
			fd, err := strconv.Atoi(e.Name())
			if err != nil {
				t.Fatal(err)
			}
			return fd
		}
	}
	t.Fatalf("%s is not open", file)
	return -1
}
