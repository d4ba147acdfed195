// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// closeLimit bounds Close as a whole.
const closeLimit = 60 * time.Second

// Close removes all pods, stops containerd and its shims, and removes what they left:
// processes, cgroups, mounts and the folder. It may be called at any state, again too.
func (h *Host) Close() error {
	if h.Dir == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	groups := runcCgroups(h.Runc)
	var errs []error
	if h.process != nil && h.cri != nil {
		soft, stop := context.WithTimeout(ctx, 20*time.Second)
		// What this leaves over, a runtime that hangs included, the steps below remove.
		_ = h.cri.RemoveAllPods(soft)
		stop()
	}
	errs = append(errs, h.Stop())
	if h.cri != nil {
		errs = append(errs, h.cri.Close())
		h.cri = nil
	}
	errs = append(errs, purge(ctx, h.Dir, groups))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close lab host: %w", err)
	}
	h.Paths = Paths{}
	return nil
}

// purge removes everything that belongs to the lab folder dir.
func purge(ctx context.Context, dir string, groups []string) error {
	errs := []error{killUsers(ctx, dir)}
	tree, err := cgroups.Detect()
	errs = append(errs, err)
	groups = append(groups, runcCgroups(filepath.Join(dir, "runc"))...)
	for _, m := range tree.Mounts() {
		groups = append(groups, filepath.Join(m, cgroupRoot(dir)))
	}
	for _, g := range groups {
		errs = append(errs, cgroups.Remove(ctx, g))
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

// runcCgroups reads the cgroups of all containers from runc's state files; a state
// file that vanishes or is being written is skipped.
func runcCgroups(root string) []string {
	files, _ := filepath.Glob(filepath.Join(root, "*", "*", "state.json")) // the pattern is constant
	var out []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		var state struct {
			CgroupPaths map[string]string `json:"cgroup_paths"`
		}
		if json.Unmarshal(data, &state) != nil {
			continue
		}
		for _, p := range state.CgroupPaths {
			if p != "" && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// killUsers kills containerd and shims of the folder: processes with an argument
// that is the folder's socket or configuration. It waits until they are gone.
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

func users(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	socket, config := filepath.Join(dir, "containerd.sock"), filepath.Join(dir, "config.toml")
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
		args := bytes.Split(line, []byte{0})
		name := filepath.Base(string(args[0]))
		if !strings.HasPrefix(name, "containerd") {
			continue
		}
		for _, a := range args[1:] {
			if string(a) == socket || string(a) == config {
				out = append(out, pid)
				break
			}
		}
	}
	return out, nil
}

// unmountBelow detaches all mounts at or below dir, the newest first.
func unmountBelow(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	slices.Reverse(mounts)
	for _, m := range mounts {
		err := unix.Unmount(m, unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	return nil
}

func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	defer f.Close()
	var out []string
	s := bufio.NewScanner(f)
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) > 4 && (fields[4] == dir || strings.HasPrefix(fields[4], dir+"/")) {
			out = append(out, fields[4])
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	return out, nil
}
