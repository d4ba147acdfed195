// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package reclaim

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestKernel has the running kernel take the pages of a file back from a cgroup of our own: what was asked for, what there is
// when more is asked for, and nothing once it is gone.
func TestKernel(t *testing.T) {
	t.Parallel()
	roots := root.Default()
	other := kerneltest.NotOfType(roots.Cgroup, unix.CGROUP2_SUPER_MAGIC)
	if _, err := other(); err == nil {
		kerneltest.LeaveToVM(t, other)
	}
	cgroup := "/koord-rt-reclaim-test-" + strconv.Itoa(os.Getpid())
	dir := roots.Cgroup + cgroup
	kerneltest.Permitted(t, os.Mkdir(dir, 0o755), unix.CAP_DAC_OVERRIDE)
	t.Cleanup(func() { unix.Rmdir(dir) }) //nolint:errcheck // the test removes it
	if _, err := os.Stat(dir + "/" + name); err != nil {
		// A kernel before 5.19, or a root that does not hand the memory controller down.
		kerneltest.LeaveToVM(t, kerneltest.NoFile(dir+"/"+name, unix.CGROUP2_SUPER_MAGIC))
	}
	const written, asked = 32 << 20, 12 << 20
	fill(t, dir, written)
	f := New(roots, node.CgroupV2)
	if why := f.Missing(); why != "" {
		t.Errorf("missing: %s", why)
	}
	before := used(t, f, cgroup)
	if before < written {
		t.Fatalf("%d are used after %d were written", before, written)
	}
	got, err := f.Reclaim(t.Context(), cgroup, asked)
	after := used(t, f, cgroup)
	if err != nil || got <= 0 || got > asked || before-after < got/2 {
		t.Errorf("got %d of %d, %v; used %d before, %d after", got, asked, err, before, after)
	}
	got, err = f.Reclaim(t.Context(), cgroup, Most)
	if err != nil || got <= 0 || got > after {
		t.Errorf("got %d of the %d that were left, %v", got, after, err)
	}
	if err := unix.Rmdir(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Reclaim(t.Context(), cgroup, asked); got != 0 || err != nil { // a pod may end at any time
		t.Errorf("after its removal: %d, %v", got, err)
	}
}

func used(t *testing.T, f FS, cgroup string) unit.Bytes {
	t.Helper()
	n, err := f.used(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// fill leaves a file's clean pages in the cgroup, and no process.
func fill(t *testing.T, dir string, size int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	file := onDisk(t) + "/file"
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "read x; exec head -c " + strconv.Itoa(size) + " /dev/zero >" + file},
		&os.ProcAttr{Env: os.Environ(), Files: []*os.File{r, nil, os.Stderr}})
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	err = root.Write(dir+"/cgroup.procs", strconv.Itoa(p.Pid))
	w.Close()
	if state, werr := p.Wait(); err != nil || werr != nil || !state.Success() {
		t.Fatal(err, werr, state)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// onDisk is a directory whose files the kernel can drop from memory: those of a tmpfs are nowhere else.
func onDisk(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{os.TempDir(), "/var/tmp", "."} {
		if _, err := kerneltest.OfType(dir, unix.TMPFS_MAGIC)(); err == nil {
			continue
		}
		made, err := os.MkdirTemp(dir, "koord-rt-reclaim-")
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(made); err != nil {
				t.Error(err)
			}
		})
		return made
	}
	t.Fatal("no directory that may be written to is on a disk")
	return ""
}
