// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// dirPrefix is short: unix socket paths end at 107 bytes.
const dirPrefix = "krd"

// cgroupRoot names the lab's cgroup root after its folder, so that whoever removes a stale folder finds the cgroups too.
func cgroupRoot(dir string) string { return "koordrt-" + filepath.Base(dir) }

// makeDir creates the folder of a Daemon and signs it with the owner's pid and start time.
func makeDir() (string, error) {
	start, err := startTime(os.Getpid())
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("/tmp", dirPrefix)
	if err != nil {
		return "", fmt.Errorf("create lab folder: %w", err)
	}
	owner := fmt.Sprintf("%d %s\n", os.Getpid(), start)
	if err := errors.Join(os.Chmod(dir, 0o711), os.WriteFile(filepath.Join(dir, "owner"), []byte(owner), 0o644)); err != nil {
		return "", errors.Join(fmt.Errorf("create lab folder: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// Close stops dockerd and removes what it left: containers, processes, cgroups, mounts and the folder. It may be called at
// any state, again too.
func (d *Daemon) Close() error {
	if d.Dir == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := errors.Join(d.Kill(), d.containerd.end(syscall.SIGKILL, 15*time.Second), purge(ctx, d.Dir)); err != nil {
		return fmt.Errorf("close lab dockerd: %w", err)
	}
	d.Dir = ""
	return nil
}

// RemoveStale removes what Daemons left whose owner died without Close.
func RemoveStale(ctx context.Context) error {
	owners, err := filepath.Glob("/tmp/" + dirPrefix + "*/owner")
	if err != nil {
		return fmt.Errorf("list lab folders: %w", err)
	}
	var errs []error
	for _, owner := range owners {
		f, err := os.Open(owner)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its owner removes it right now
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil && dead(owner) {
			errs = append(errs, purge(ctx, filepath.Dir(owner)))
		}
		f.Close()
	}
	return errors.Join(errs...)
}

// dead says whether the process that signed the folder is gone. A file that is being written counts as alive.
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

// startTime is field 22 of /proc/PID/stat: with the pid it names a process for good.
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

// purge removes everything that belongs to the lab folder dir.
func purge(ctx context.Context, dir string) error {
	errs := []error{killUsers(ctx, dir)}
	tree, err := cgroups.Detect()
	errs = append(errs, err)
	for _, m := range tree.Mounts() {
		errs = append(errs, cgroups.Remove(ctx, filepath.Join(m, cgroupRoot(dir))))
	}
	errs = append(errs, unmountBelow(dir))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove lab folder: %w", err)
	}
	return nil
}

// killUsers kills dockerd, containerd and the shims of the folder, the parents first, and waits until they are gone.
func killUsers(ctx context.Context, dir string) error {
	for {
		pids, err := users(dir)
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

// users lists the programs of Docker that have a path below dir in their command line.
func users(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue // gone
		}
		args := bytes.Split(line, []byte{0})
		name := filepath.Base(string(args[0]))
		if name != "dockerd" && !strings.HasPrefix(name, "containerd") {
			continue
		}
		if bytes.Contains(bytes.Join(args[1:], []byte{' '}), []byte(dir+"/")) {
			out = append(out, pid)
		}
	}
	return out, nil
}

// unmountBelow detaches all mounts at or below dir, the newest first.
func unmountBelow(dir string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	lines := strings.Split(string(data), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		fields := strings.Fields(lines[i])
		if len(fields) < 5 || fields[4] != dir && !strings.HasPrefix(fields[4], dir+"/") {
			continue
		}
		if err := unix.Unmount(fields[4], unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", fields[4], err)
		}
	}
	return nil
}
