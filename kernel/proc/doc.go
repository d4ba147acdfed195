// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package proc reads and writes what the kernel keeps per process: scheduling policy, OOM score and core-scheduling
// cookie, and the tables of /proc that describe the machine (mountinfo, meminfo).
//
// Inputs are process ids and a procfs root; outputs are model values. Parsers are pure functions of bytes. It imports
// model, kernel/root, kernel/scan, golang.org/x/sys and the standard library only, and runs no other program.
package proc

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// FS is a procfs: its mount point, "/proc" outside of tests. System calls always go to the running kernel.
type FS string

// Path joins elements below the root.
func (fs FS) Path(elem ...string) string {
	return filepath.Join(append([]string{string(fs)}, elem...)...)
}

func (fs FS) pid(pid int, elem ...string) string {
	return fs.Path(append([]string{strconv.Itoa(pid)}, elem...)...)
}

// UnsupportedError says that this kernel lacks something. errors.Is(err, errors.ErrUnsupported) holds.
type UnsupportedError struct {
	Feature string
	// Why in words, with the version it appeared in.
	Why string
}

// Error names the feature and the reason.
func (e *UnsupportedError) Error() string { return e.Feature + " is not supported: " + e.Why }

// Unwrap makes the error match errors.ErrUnsupported.
func (e *UnsupportedError) Unwrap() error { return errors.ErrUnsupported }

// Comm reads /proc/PID/comm, the command's name cut to 15 bytes (proc(5)); empty when the process is gone.
func (fs FS) Comm(pid int) string {
	b, err := os.ReadFile(fs.pid(pid, "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}
