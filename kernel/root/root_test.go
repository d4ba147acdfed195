// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package root_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
)

func TestJoin(t *testing.T) {
	t.Parallel()
	for rel, want := range map[string]string{
		"":                        "/r",
		"/":                       "/r",
		"/a/b":                    "/r/a/b",
		"a//b/":                   "/r/a/b",
		"/a/./b":                  "/r/a/b",
		"/a/..b":                  "/r/a/..b",
		"/a/../../etc":            "",
		"..":                      "",
		"a\x00b":                  "",
		strings.Repeat("a", 5000): "",
	} {
		got, err := root.Join("/r", rel)
		if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, root.ErrOutside) {
			t.Errorf("Join(%.20q) = %q, %v; want %q", rel, got, err, want)
		}
	}
}

func TestReadWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := dir + "/cpu.max"
	if err := os.WriteFile(path, []byte("max 100000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := root.Read(path); got != "max 100000" || err != nil {
		t.Errorf("Read = %q, %v", got, err)
	}
	if err := root.Write(path, "1"); err != nil {
		t.Fatal(err)
	}
	if err := root.WriteNonblock(path, "22"); err != nil {
		t.Fatal(err)
	}
	if got, err := root.Read(path); got != "22" || err != nil {
		t.Errorf("after Write: %q, %v", got, err)
	}
	big := strings.Repeat("123456\n", 10000)
	if err := os.WriteFile(path, []byte(big), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := root.Read(path); got != strings.TrimRight(big, "\n") || err != nil {
		t.Errorf("large file: %d bytes, %v", len(got), err)
	}
	if err := os.Truncate(path, 1<<23); err != nil {
		t.Fatal(err)
	}
	if _, err := root.Read(path); !errors.Is(err, root.ErrTooLarge) {
		t.Errorf("huge file: %v", err)
	}
}

func TestErrorsNamePathValueAndErrno(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/gone/cpu.max"
	_, err := root.Read(path)
	if !errors.Is(err, unix.ENOENT) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("read: %v", err)
	}
	err = root.Write(path, "5 6")
	if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), path+` "5 6": no such file`) {
		t.Errorf("write: %v", err)
	}
	if _, err := root.Inode(path); !errors.Is(err, unix.ENOENT) {
		t.Errorf("inode: %v", err)
	}
}

func TestReadDoesNotAllocate(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/cpu.weight", []byte("100\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := root.Get()
	defer b.Put()
	n := testing.AllocsPerRun(100, func() {
		if raw, err := b.Read(dir, "/", "cpu.weight"); err != nil || string(raw) != "100" {
			t.Fatal(string(raw), err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per read", n)
	}
}

func TestBootID(t *testing.T) {
	t.Parallel()
	id, err := root.Default().BootID()
	if err != nil || len(id) != 36 {
		t.Errorf("BootID = %q, %v", id, err)
	}
	a, err := root.Inode("/proc")
	if err != nil || a == 0 {
		t.Errorf("Inode = %d, %v", a, err)
	}
}
