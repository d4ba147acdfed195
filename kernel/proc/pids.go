// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ReadPIDs reads a file of ids, one per line: cgroup.procs, cgroup.threads, tasks (v1 and resctrl).
func ReadPIDs(path string) ([]int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	pids, err := ParsePIDs(string(b))
	if err != nil {
		return pids, fmt.Errorf("parse %s: %w", path, err)
	}
	return pids, nil
}

// ParsePIDs parses ids, one per line ("1234\n1235\n"), as Documentation/admin-guide/cgroup-v2.rst describes
// cgroup.procs. A 0 stands for a process of another pid namespace and is skipped. A bad line is an error; the ids of
// the good ones are returned with it.
func ParsePIDs(s string) ([]int, error) {
	var pids []int
	var errs []error
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		n, err := strconv.ParseUint(line, 10, 31)
		if err != nil {
			errs = append(errs, fmt.Errorf("%.20q is no process id", line))
			continue
		}
		if n > 0 {
			pids = append(pids, int(n))
		}
	}
	return pids, errors.Join(errs...)
}

// Threads lists /proc/PID/task.
func (fs FS) Threads(pid int) ([]int, error) {
	entries, err := os.ReadDir(fs.pid(pid, "task"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", fs.pid(pid, "task"), err)
	}
	tids := make([]int, 0, len(entries))
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

// StartTime reads field 22 of /proc/PID/stat, clock ticks after boot: with the pid it identifies a process even when
// the pid has been reused.
func (fs FS) StartTime(pid int) (uint64, error) {
	path := fs.pid(pid, "stat")
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	t, err := parseStartTime(string(b))
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", path, err)
	}
	return t, nil
}

// parseStartTime finds starttime in /proc/PID/stat (proc(5)).
func parseStartTime(stat string) (uint64, error) { return parseStatField(stat, 22) }

// parseStatField finds field n, 3 or more, of /proc/PID/stat, a number: "PID (comm) S ppid …", counted after the last ')' since comm may hold any
// byte (proc(5)).
func parseStatField(stat string, n int) (uint64, error) {
	i := strings.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, errors.New("no command name")
	}
	fields := strings.Fields(stat[i+1:]) // state, field 3, is the first
	if len(fields) <= n-3 {
		return 0, fmt.Errorf("%d fields after the command name", len(fields))
	}
	return strconv.ParseUint(fields[n-3], 10, 64)
}
