// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// kind names folders of one test of this process, whose programs are tails of their files.
func kind(test string) *Kind {
	return &Kind{
		Prefix: fmt.Sprintf("krf%d%s", os.Getpid(), test),
		Uses: func(dir string, args []string) bool {
			return filepath.Base(args[0]) == "tail" && strings.HasPrefix(args[len(args)-2], dir+"/")
		},
	}
}

// made is a folder that is gone after the test, whatever happened in it.
func made(t *testing.T, k *Kind) string {
	t.Helper()
	dir, err := k.Make()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Purge(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// tail follows a file of the folder until it is killed.
func tail(t *testing.T, dir string) (pid int) {
	t.Helper()
	file := filepath.Join(dir, "log")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tail", "-f", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // most have been
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// dies waits until a child that has been killed is dead: on a busy machine that is not at once.
func dies(t *testing.T, pid int) bool {
	t.Helper()
	for range 1000 {
		if !runs(t, pid) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// runs says whether a child of ours that nobody has waited for is more than a zombie.
func runs(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return !strings.Contains(string(stat), ") Z ")
}

func gone(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err != nil
}

// Of a dead owner's folder nothing is left; its neighbours stay: those of the living, of another kind, and those whose
// owner has not signed yet.
func TestRemoveStale(t *testing.T) {
	t.Parallel()
	k, other := kind("s"), kind("o")
	stale, alive, unsigned, foreign := made(t, k), made(t, k), made(t, k), made(t, other)
	user, neighbour := tail(t, stale), tail(t, alive)
	if err := k.RemoveStale(t.Context()); err != nil || gone(t, stale) || !runs(t, user) {
		t.Fatalf("a living owner's folder was touched: %v", err)
	}
	reused := fmt.Sprintf("%d 1\n", os.Getpid()) // this pid, of a process that started at another time
	for dir, text := range map[string]string{stale: reused, foreign: reused, unsigned: fmt.Sprint(os.Getpid())} {
		if err := os.WriteFile(filepath.Join(dir, "owner"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.RemoveStale(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !gone(t, stale) || !dies(t, user) {
		t.Errorf("left of the dead: folder %t, process %t", !gone(t, stale), runs(t, user))
	}
	if gone(t, alive) || gone(t, unsigned) || gone(t, foreign) || !runs(t, neighbour) {
		t.Errorf("gone: of the living %t, unsigned %t, of another kind %t, process %t", gone(t, alive), gone(t, unsigned), gone(t, foreign), !runs(t, neighbour))
	}
}

// A folder that another process is purging is left to it.
func TestRemoveStaleOnce(t *testing.T) {
	t.Parallel()
	k := kind("l")
	dir := made(t, k)
	owner := filepath.Join(dir, "owner")
	if err := os.WriteFile(owner, []byte(fmt.Sprintf("%d 1\n", os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(owner)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := k.RemoveStale(t.Context()); err != nil || gone(t, dir) {
		t.Errorf("purged although another is at it: %v", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := k.RemoveStale(t.Context()); err != nil || !gone(t, dir) {
		t.Errorf("left: %v", err)
	}
}

// A process that names the folder nowhere is found in the folder's control group, and in one that the kind knows of.
func TestPurgeRemovesCgroups(t *testing.T) {
	t.Parallel()
	tree, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	mount := tree.Unified
	if !tree.V2() {
		mount = tree.Controllers["memory"]
	}
	k := kind("c")
	dir := made(t, k)
	own, known, given := filepath.Join(mount, Cgroup(dir)), filepath.Join(mount, Cgroup(dir)+"-known"), filepath.Join(mount, Cgroup(dir)+"-given")
	k.Cgroups = func(of string) []string { return []string{filepath.Join(mount, Cgroup(of)+"-known")} }
	var users []int
	for _, group := range []string{filepath.Join(own, "child"), known, given} {
		kerneltest.Permitted(t, os.MkdirAll(group, 0o755), unix.CAP_DAC_OVERRIDE)
		pid := tail(t, t.TempDir())
		if err := cgroups.Write(group, "cgroup.procs", fmt.Sprint(pid)); err != nil {
			t.Fatal(err)
		}
		users = append(users, pid)
	}
	if err := k.Purge(t.Context(), dir, given); err != nil {
		t.Fatal(err)
	}
	for i, group := range []string{own, known, given} {
		if !gone(t, group) || runs(t, users[i]) {
			t.Errorf("%s is left: %t, its process: %t", group, !gone(t, group), runs(t, users[i]))
		}
	}
}

// Mounts below go, also those on one another; those of a folder whose name only begins so stay.
func TestUnmount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	below, beside := filepath.Join(dir, "lab"), filepath.Join(dir, "labx")
	for _, at := range []string{below, filepath.Join(below, "a"), filepath.Join(below, "a"), beside} {
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		kerneltest.Permitted(t, unix.Mount("lab", at, "tmpfs", 0, ""), unix.CAP_SYS_ADMIN)
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // most are unmounted
	}
	if err := Unmount(below); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), " "+below+" ") || strings.Contains(string(text), " "+below+"/") {
		t.Errorf("mounts are left below %s:\n%s", below, text)
	}
	if !strings.Contains(string(text), " "+beside+" ") {
		t.Errorf("%s is no mount any more", beside)
	}
}
