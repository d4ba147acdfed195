// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package folder is the life of a private runtime's folder: made and signed by its owner, and removed with all that lives
// in it: processes, control groups and mounts.
//
// Input: a Kind, which says how the folders of one runtime are named and which processes are theirs. Output: folders, and
// nothing once they are purged. It must not import any package under test.
package folder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// Kind is one sort of folder. All fields are required unless a comment says otherwise.
type Kind struct {
	// Prefix of the folders' names in /tmp. It is short: unix socket paths end at 107 bytes.
	Prefix string
	// Uses says whether the process with this command line belongs to the folder dir and may be killed.
	Uses func(dir string, args []string) bool
	// Cgroups lists control groups that a folder has beside Cgroup's, as directories; may be nil.
	Cgroups func(dir string) []string
}

// Cgroup names a folder's root of control groups, so that whoever removes a stale folder finds the groups too.
func Cgroup(dir string) string { return "koordrt-" + filepath.Base(dir) }

// Make makes a folder and signs it with this process's pid and start time, so that a later process can tell a folder whose
// owner is dead.
func (k *Kind) Make() (string, error) {
	start, err := startTime(os.Getpid())
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("/tmp", k.Prefix)
	if err != nil {
		return "", fmt.Errorf("create lab folder: %w", err)
	}
	owner := fmt.Sprintf("%d %s\n", os.Getpid(), start)
	if err := errors.Join(os.Chmod(dir, 0o711), os.WriteFile(filepath.Join(dir, "owner"), []byte(owner), 0o644)); err != nil {
		return "", errors.Join(fmt.Errorf("create lab folder: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// RemoveStale purges the folders whose owner died without doing it.
func (k *Kind) RemoveStale(ctx context.Context) error {
	owners, err := filepath.Glob("/tmp/" + k.Prefix + "*/owner")
	if err != nil {
		return fmt.Errorf("list lab folders: %w", err)
	}
	var errs []error
	for _, owner := range owners {
		if !dead(owner) {
			continue
		}
		if err := k.purgeOnce(ctx, owner); err != nil {
			errs = append(errs, fmt.Errorf("remove stale lab %s: %w", filepath.Dir(owner), err))
		}
	}
	return errors.Join(errs...)
}

// purgeOnce purges the folder of an owner file unless another process is at it.
func (k *Kind) purgeOnce(ctx context.Context, owner string) error {
	f, err := os.Open(owner)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // held by the one that purges
	}
	return k.Purge(ctx, filepath.Dir(owner))
}

// Purge kills the folder's processes and removes its control groups, those given too, its mounts and the folder. What is
// gone already is no error.
func (k *Kind) Purge(ctx context.Context, dir string, groups ...string) error {
	errs := []error{k.kill(ctx, dir)}
	if k.Cgroups != nil {
		groups = slices.Concat(groups, k.Cgroups(dir))
	}
	for _, g := range groups {
		errs = append(errs, cgroups.Remove(ctx, g))
	}
	errs = append(errs, cgroups.RemoveAll(ctx, Cgroup(dir)), Unmount(dir))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove lab folder: %w", err)
	}
	return nil
}

// dead says whether the process that signed the folder is gone. A file that is being written or removed counts as alive.
func dead(owner string) bool {
	data, err := os.ReadFile(owner)
	if err != nil {
		return false
	}
	fields := strings.Fields(string(data))
	if len(fields) != 2 {
		return false
	}
	pid, err := strconv.Atoi(fields[0])
	if err != nil {
		return false
	}
	now, err := startTime(pid)
	return err != nil || now != fields[1]
}

// startTime is field 22 of /proc/PID/stat, in clock ticks since boot: with the pid it names a process for good.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", fmt.Errorf("read process start: %w", err)
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) // the name in parentheses may hold spaces
	if len(fields) < 20 {
		return "", fmt.Errorf("read process start: stat of %d is short", pid)
	}
	return string(fields[19]), nil
}

// kill kills the folder's processes and waits until they are gone: what starts another may do so until it is dead.
func (k *Kind) kill(ctx context.Context, dir string) error {
	for {
		pids, err := k.users(dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill %d: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for processes %v: %w", pids, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// users lists the processes of the folder, but for this one.
func (k *Kind) users(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue // gone
		}
		if k.Uses(dir, strings.Split(string(line), "\x00")) {
			out = append(out, pid)
		}
	}
	return out, nil
}

// Unmount detaches all mounts at and below dir, the newest first.
func Unmount(dir string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	for _, line := range slices.Backward(strings.Split(string(data), "\n")) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[4] != dir && !strings.HasPrefix(fields[4], dir+"/") {
			continue
		}
		err := unix.Unmount(fields[4], unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", fields[4], err)
		}
	}
	return nil
}
