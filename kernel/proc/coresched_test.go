// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeCookies keeps cookies by pid, as a kernel with core scheduling does.
type fakeCookies struct {
	byPID map[int]uint64
	last  uint64
	err   error
}

func (f *fakeCookies) cookie(pid int) (uint64, error) { return f.byPID[pid], f.err }

func (f *fakeCookies) create(pid int) error {
	f.last++
	f.byPID[pid] = f.last
	return f.err
}

func (f *fakeCookies) share(from, to int) error {
	f.byPID[to] = f.byPID[from]
	return f.err
}

func (f *fakeCookies) clear(pid int) error {
	delete(f.byPID, pid)
	return f.err
}

// life writes the stat file of a process that started at a tick; tick 0 ends it.
func life(t *testing.T, fs FS, pid, tick int) {
	t.Helper()
	dir := fs.pid(pid)
	if tick == 0 {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	stat := strconv.Itoa(pid) + " (x) S " + strings.Repeat("1 ", 18) + strconv.Itoa(tick) + " 0\n"
	if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644); err != nil {
		t.Fatal(err)
	}
}

func newFake(t *testing.T) (*CoreSched, *fakeCookies) {
	t.Helper()
	kernel := &fakeCookies{byPID: map[int]uint64{}}
	c := NewCoreSched(FS(t.TempDir()))
	c.kernel = kernel
	return c, kernel
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCoreSchedGroupSurvivesItsFirstMember(t *testing.T) {
	t.Parallel()
	c, kernel := newFake(t)
	for pid := 11; pid <= 13; pid++ {
		life(t, c.fs, pid, pid)
	}
	must(t, c.Assign("g", 11))
	must(t, c.Assign("g", 12))
	life(t, c.fs, 11, 0)
	must(t, c.Assign("g", 13))
	if kernel.byPID[13] != kernel.byPID[12] || kernel.byPID[13] == 0 {
		t.Errorf("cookies %v", kernel.byPID)
	}
	if got := c.Groups()["g"]; !slices.Equal(got, []int{12, 13}) {
		t.Errorf("members %v", got)
	}
}

func TestCoreSchedReusedPidIsAStranger(t *testing.T) {
	t.Parallel()
	c, kernel := newFake(t)
	life(t, c.fs, 11, 100)
	must(t, c.Assign("g", 11))
	life(t, c.fs, 11, 200) // another process with the same pid, and by chance a cookie
	kernel.byPID[11] = 77
	life(t, c.fs, 12, 210)
	must(t, c.Assign("g", 12))
	if kernel.byPID[12] == 77 {
		t.Error("joined a stranger's cookie")
	}
}

func TestCoreSchedAdopt(t *testing.T) {
	t.Parallel()
	c, kernel := newFake(t)
	life(t, c.fs, 11, 1)
	life(t, c.fs, 12, 2)
	kernel.byPID[11] = 5
	if ok, err := c.Adopt("g", 11); !ok || err != nil {
		t.Fatalf("adopt: %v, %v", ok, err)
	}
	if ok, err := c.Adopt("g", 12); ok || err != nil {
		t.Errorf("adopted a process without a cookie: %v, %v", ok, err)
	}
	must(t, c.Assign("g", 12))
	if kernel.byPID[12] != 5 {
		t.Errorf("cookies %v", kernel.byPID)
	}
	if in, err := c.InGroup("g", 12); !in || err != nil {
		t.Errorf("in group: %v, %v", in, err)
	}
	kernel.byPID[12] = 9
	if in, err := c.InGroup("g", 12); in || err != nil {
		t.Errorf("in group with a foreign cookie: %v, %v", in, err)
	}
	if ok, err := c.Adopt("g", 12); ok || err != nil {
		t.Errorf("adopted a foreign cookie beside a member that lives: %v, %v", ok, err)
	}
	must(t, c.Assign("g", 12))
	if kernel.byPID[12] != 5 {
		t.Errorf("a foreign cookie was not corrected: %v", kernel.byPID)
	}
	for _, none := range []bool{false, true} {
		if in, err := c.InGroup("", 12); in != none || err != nil {
			t.Errorf("without a cookie: %v, %v; want %v", in, err, none)
		}
		must(t, c.Clear(12))
	}
}

func TestCoreSchedMovesBetweenGroups(t *testing.T) {
	t.Parallel()
	c, kernel := newFake(t)
	life(t, c.fs, 11, 1)
	life(t, c.fs, 12, 2)
	must(t, c.Assign("a", 11))
	must(t, c.Assign("b", 12))
	must(t, c.Assign("b", 11))
	if kernel.byPID[11] != kernel.byPID[12] {
		t.Errorf("cookies %v", kernel.byPID)
	}
	if g := c.Groups(); len(g["a"]) != 0 || len(g["b"]) != 2 {
		t.Errorf("groups %v", g)
	}
	must(t, c.Clear(11))
	if g := c.Groups(); len(g["b"]) != 1 || kernel.byPID[11] != 0 {
		t.Errorf("after clear: %v, %v", g, kernel.byPID)
	}
}

func TestCoreSchedErrors(t *testing.T) {
	t.Parallel()
	c, kernel := newFake(t)
	if err := c.Assign("g", 11); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("process that is gone: %v", err)
	}
	life(t, c.fs, 11, 1)
	kernel.err = fmt.Errorf("prctl: %w", unix.EPERM)
	if err := c.Assign("g", 11); !errors.Is(err, unix.EPERM) || len(c.Groups()) != 0 {
		t.Errorf("refused: %v, %v", err, c.Groups())
	}
	kernel.err = unix.ESRCH
	if err := c.Clear(11); err != nil {
		t.Errorf("clear of a process that is gone: %v", err)
	}
}

// Groups maps each known group to the pids of its members that live.
func (c *CoreSched) Groups() map[string][]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string][]int{}
	for group := range c.groups {
		c.prune(group)
		for _, m := range c.groups[group] {
			out[group] = append(out[group], m.pid)
		}
	}
	return out
}
