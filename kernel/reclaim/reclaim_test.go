// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package reclaim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
)

// kernel stands in for memory.reclaim: it gives what is there and says EAGAIN when that was not enough.
type kernel struct {
	t      *testing.T
	dir    string
	spare  unit.Bytes
	asked  []unit.Bytes
	before func()
	err    error
}

func machine(t *testing.T, spare unit.Bytes) (FS, *kernel) {
	t.Helper()
	r := root.Roots{Cgroup: t.TempDir()}
	k := &kernel{t: t, dir: filepath.Join(r.Cgroup, "kubepods/podx"), spare: spare, before: func() {}}
	for _, dir := range []string{k.dir, filepath.Dir(k.dir)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		k.put(dir+"/memory.reclaim", 0)
	}
	k.put(k.dir+"/memory.current", 2<<30)
	f := New(r, node.CgroupV2)
	f.write = k.write
	return f, k
}

func (k *kernel) put(path string, n unit.Bytes) {
	if err := os.WriteFile(path, []byte(strconv.FormatInt(int64(n), 10)+"\n"), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kernel) write(path, value string) error {
	if k.err != nil {
		return &root.FileError{Op: "write", Path: path, Value: value, Err: k.err}
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || path != k.dir+"/memory.reclaim" {
		k.t.Errorf("write %q to %s", value, path)
	}
	k.asked = append(k.asked, unit.Bytes(n))
	k.before()
	taken := min(unit.Bytes(n), k.spare)
	k.spare -= taken
	text, err := os.ReadFile(k.dir + "/memory.current")
	if err != nil {
		k.t.Fatal(err)
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		k.t.Fatal(err)
	}
	k.put(k.dir+"/memory.current", unit.Bytes(used)-taken)
	if taken < unit.Bytes(n) {
		return &root.FileError{Op: "write", Path: path, Value: value, Err: unix.EAGAIN}
	}
	return nil
}

func TestReclaim(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spare, amount, got unit.Bytes
		writes             int
	}{
		"all of it":         {1 << 30, 40 << 20, 40 << 20, 3},
		"a part":            {20 << 20, 40 << 20, 20 << 20, 2},
		"nothing to take":   {0, 40 << 20, 0, 1},
		"bounded":           {4 << 30, 8 << 30, Most, 64},
		"nothing asked for": {1 << 30, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, k := machine(t, tc.spare)
			got, err := f.Reclaim(t.Context(), "/kubepods/podx", tc.amount)
			if err != nil || got != tc.got || len(k.asked) != tc.writes {
				t.Errorf("got %d in %d writes, %v; want %d in %d", got, len(k.asked), err, tc.got, tc.writes)
			}
			for _, n := range k.asked {
				if n > chunk {
					t.Errorf("asked for %d at once", n)
				}
			}
		})
	}
}

func TestReclaimEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f, k := machine(t, 1<<30)
	ctx, cancel := context.WithCancel(t.Context())
	k.before = cancel
	if got, err := f.Reclaim(ctx, "/kubepods/podx", 1<<30); got != chunk || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	f, k := machine(t, 1<<30)
	for _, cgroup := range []string{"", "/", "/../kubepods/podx"} {
		if _, err := f.Reclaim(t.Context(), cgroup, 1<<20); err == nil {
			t.Errorf("reclaimed from %q", cgroup)
		}
	}
	k.err = unix.EINVAL
	if _, err := f.Reclaim(t.Context(), "/kubepods/podx", 1<<20); !errors.Is(err, unix.EINVAL) {
		t.Errorf("what the kernel refuses: %v", err)
	}
	k.err = unix.ENOENT
	if _, err := f.Reclaim(t.Context(), "/kubepods/podx", 1<<20); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without the file: %v", err)
	}
}

// A cgroup that ends brings what it has brought, whichever of its files tells so, and is no error: the kernel can be asked of the others.
func TestGone(t *testing.T) {
	t.Parallel()
	f, k := machine(t, 1<<30)
	if got, err := f.Reclaim(t.Context(), "/kubepods/gone", 1<<20); got != 0 || err != nil {
		t.Errorf("before it began: %d, %v", got, err)
	}
	for _, errno := range []error{unix.ENOENT, unix.ENODEV} {
		f.write = func(path, value string) error {
			if len(k.asked) == 0 {
				return k.write(path, value)
			}
			if err := os.RemoveAll(k.dir); err != nil {
				t.Error(err)
			}
			return &root.FileError{Op: "write", Path: path, Value: value, Err: errno}
		}
		if got, err := f.Reclaim(t.Context(), "/kubepods/podx", 3*chunk); got != chunk || err != nil {
			t.Errorf("%v meanwhile: %d, %v", errno, got, err)
		}
		f, k = machine(t, 1<<30)
	}
	k.before = func() {
		if err := os.RemoveAll(k.dir); err != nil {
			t.Error(err)
		}
	}
	f.write = func(path, value string) error {
		k.before()
		return &root.FileError{Op: "write", Path: path, Value: value, Err: unix.EAGAIN}
	}
	if got, err := f.Reclaim(t.Context(), "/kubepods/podx", chunk); got != 0 || err != nil {
		t.Errorf("after it was asked: %d, %v", got, err)
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	f, k := machine(t, 0)
	if why := f.Missing(); why != "" {
		t.Errorf("missing: %s", why)
	}
	if err := os.Remove(filepath.Dir(k.dir) + "/memory.reclaim"); err != nil {
		t.Fatal(err)
	}
	if why := f.Missing(); !strings.Contains(why, "5.19") {
		t.Errorf("without the file: %q", why)
	}
	v1 := New(root.Roots{Cgroup: "/none"}, node.CgroupV1)
	if why := v1.Missing(); !strings.Contains(why, "cgroup v1") {
		t.Errorf("on v1: %q", why)
	}
	if _, err := v1.Reclaim(t.Context(), "/kubepods", 1); !errors.Is(err, ErrUnsupported) {
		t.Errorf("on v1: %v", err)
	}
}
