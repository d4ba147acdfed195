// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dirPrefix is short: unix socket paths end at 107 bytes.
const dirPrefix = "krt"

// makeDir creates the folder of a Host and signs it with the owner's pid and start
// time, so that a later process can tell a folder whose owner is dead.
func makeDir() (string, error) {
	dir, err := os.MkdirTemp("/tmp", dirPrefix)
	if err != nil {
		return "", fmt.Errorf("create lab folder: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", fmt.Errorf("create lab folder: %w", err)
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		return "", err
	}
	owner := fmt.Sprintf("%d %s\n", os.Getpid(), start)
	if err := os.WriteFile(filepath.Join(dir, "owner"), []byte(owner), 0o644); err != nil {
		return "", fmt.Errorf("sign lab folder: %w", err)
	}
	return dir, nil
}

// RemoveStale removes the folders, processes, cgroups and mounts of Hosts whose owner
// died without Close.
func RemoveStale(ctx context.Context) error {
	files, err := filepath.Glob("/tmp/" + dirPrefix + "*/owner")
	if err != nil {
		return fmt.Errorf("list lab folders: %w", err)
	}
	var errs []error
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // its owner removes it right now
		}
		fields := strings.Fields(string(data))
		if len(fields) != 2 {
			continue // being written
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			continue
		}
		if now, err := startTime(pid); err == nil && now == fields[1] {
			continue // alive
		}
		if err := purgeOnce(ctx, f); err != nil {
			errs = append(errs, fmt.Errorf("remove stale lab %s: %w", filepath.Dir(f), err))
		}
	}
	return errors.Join(errs...)
}

// purgeOnce purges the folder of an owner file unless another process is at it.
func purgeOnce(ctx context.Context, owner string) error {
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
	return purge(ctx, filepath.Dir(owner), nil)
}

// startTime is field 22 of /proc/PID/stat, in clock ticks since boot: with the pid it
// names a process for good.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", fmt.Errorf("read process start: %w", err)
	}
	// The name in parentheses may hold spaces.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("read process start: stat of %d is short", pid)
	}
	return fields[19], nil
}
