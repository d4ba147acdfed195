// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package root_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
)

func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// A file that is open shows what stands in it now, whoever has written it, and is written where it was read.
func TestFilesReadAndWrite(t *testing.T) {
	dir := t.TempDir()
	quota, burst := dir+"/cpu.cfs_quota_us", dir+"/cpu.cfs_burst_us"
	put(t, quota, "50000\n")
	put(t, burst, "10000\n")
	before := descriptors(t)
	var f root.Files
	b := f.Get()
	defer b.Put()
	read := func(want string, parts ...string) {
		t.Helper()
		if got, err := b.Read(parts...); string(got) != want || err != nil {
			t.Errorf("%v = %q, %v; want %q", parts, got, err, want)
		}
	}
	if got, err := b.ReadToWrite(dir, "/cpu.cfs_burst_us"); string(got) != "10000" || err != nil {
		t.Errorf("ReadToWrite = %q, %v", got, err)
	}
	read("50000", dir, "/", "cpu.cfs_quota_us")
	open := descriptors(t)
	if err := f.Write(burst, "20000"); err != nil {
		t.Error(err)
	}
	read("20000", burst)
	put(t, burst, "30000\n")
	read("30000", burst)
	read("50000", quota)
	if n := descriptors(t); n != open || n != before+3 {
		t.Errorf("%d descriptors before, %d after reading, %d at the end: want the directory and two files", before, open, n)
	}
	want, err := root.Inode(dir)
	if got, ierr := f.Inode(dir); got != want || err != nil || ierr != nil {
		t.Errorf("inode %d, want %d; %v, %v", got, want, err, ierr)
	}
	if f.Close(); descriptors(t) != before {
		t.Errorf("%d descriptors left of %d", descriptors(t), before)
	}
	read("30000", burst)
	f.Close()
}

// A descriptor that is lent is read and written in the place of the file at its path, and given back open; one that was read to be written can
// be taken as well.
func TestFilesLend(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/lent", "10000\n")
	put(t, dir+"/own", "20000\n")
	lent, err := unix.Open(dir+"/lent", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	var f root.Files
	b := f.Get()
	defer b.Put()
	f.Lend("/nowhere/burst", lent)
	if got, err := b.ReadToWrite("/nowhere", "/burst"); string(got) != "10000" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := f.Write("/nowhere/burst", "30000"); err != nil {
		t.Error(err)
	}
	if got, err := b.ReadToWrite(dir, "/own"); string(got) != "20000" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	own, ok := f.Take(dir + "/own")
	if back, lentOK := f.Take("/nowhere/burst"); back != lent || !lentOK || !ok || own == lent {
		t.Errorf("taken: %d, %t and %d, %t; lent was %d", own, ok, back, lentOK, lent)
	}
	if _, ok := f.Take(dir + "/own"); ok {
		t.Error("taken twice")
	}
	if f.Close(); descriptors(t) != before+1 {
		t.Errorf("%d descriptors are open, want the own one beside %d", descriptors(t), before)
	}
	if got, err := os.ReadFile(dir + "/lent"); string(got) != "30000\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if !root.Alive(own) || !root.Alive(lent) {
		t.Error("what can be read is not alive")
	}
	unix.Close(own)
	unix.Close(lent)
	if root.Alive(own) {
		t.Error("what is closed is alive")
	}
}

// What cannot be opened is the same error as without Files; what was not read before is written all the same.
func TestFilesErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir+"/plain", "1\n")
	var f, none *root.Files
	f = &root.Files{}
	defer f.Close()
	for name, files := range map[string]*root.Files{"open": f, "nil": none} {
		b := files.Get()
		for _, path := range []string{dir + "/missing", dir + "/missing/file", dir + "/plain/file"} {
			for how, read := range map[string]func(...string) ([]byte, error){"read": b.Read, "to write": b.ReadToWrite} {
				_, err := read(path)
				var fe *root.FileError
				if !errors.As(err, &fe) || fe.Op != "open" || fe.Path != path || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
					t.Errorf("%s, %s: %v", name, how, err)
				}
			}
		}
		if err := files.Write(dir+"/plain", "2"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := files.Inode(dir + "/missing"); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: inode: %v", name, err)
		}
		b.Put()
	}
}

// However many files are read, a bounded number stays open.
func TestFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	before := descriptors(t)
	var f root.Files
	defer f.Close()
	b := f.Get()
	defer b.Put()
	for i := range 100 {
		file := fmt.Sprintf("%s/%d", dir, i)
		put(t, file, fmt.Sprint(i))
		for range 2 {
			if got, err := b.ReadToWrite(file); string(got) != fmt.Sprint(i) || err != nil {
				t.Fatalf("%s = %q, %v", file, got, err)
			}
		}
		if err := f.Write(file, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if n := descriptors(t); n > before+40 {
		t.Errorf("%d descriptors, before it were %d", n, before)
	}
}

func TestFilesDoNotAllocate(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a", "1\n")
	put(t, dir+"/b", "2\n")
	var f root.Files
	b := f.Get()
	defer b.Put()
	pass := func() {
		_, err1 := b.ReadToWrite(dir, "/a")
		_, err2 := b.Read(dir, "/b")
		_, err3 := b.Read(dir, "/a")
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	pass() // makes room
	if n := testing.AllocsPerRun(100, pass); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
