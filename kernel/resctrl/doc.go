// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package resctrl reads and writes the resctrl filesystem: what the hardware can, the control groups with their
// schemata and tasks, and monitoring groups (Documentation/filesystems/resctrl.rst).
//
// Inputs are the mount point and names that the caller owns; outputs are model values. It never touches a group it was
// not given the name of, and keeps no state: the filesystem is the state. It imports model, kernel/root,
// kernel/proc and the standard library only.
package resctrl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/root"
)

// FS is a resctrl filesystem: its mount point, "/sys/fs/resctrl" outside of tests.
type FS string

// ErrName is wrapped when a name cannot be a group's.
var ErrName = errors.New("not a resctrl group name")

// maxName is NAME_MAX.
const maxName = 255

// ValidName checks a group's name: one path element that is no file or directory of resctrl's own. The empty name, the
// root group's, is not valid here; functions that accept it say so.
func ValidName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("%w: %q", ErrName, name)
	case len(name) > maxName:
		return fmt.Errorf("%w: %.20q… is longer than %d bytes", ErrName, name, maxName)
	case strings.ContainsAny(name, "/\n\x00"):
		return fmt.Errorf("%w: %.40q has a slash, newline or NUL", ErrName, name)
	}
	switch name {
	case "info", "mon_groups", "mon_data", "schemata", "tasks", "cpus", "cpus_list", "mode", "size", "mba_MBps_event":
		return fmt.Errorf("%w: %q is the kernel's", ErrName, name)
	}
	return nil
}

// dir is a group's directory; "" is the root group.
func (fs FS) dir(group string) (string, error) {
	if group == "" {
		return string(fs), nil
	}
	if err := ValidName(group); err != nil {
		return "", err
	}
	return filepath.Join(string(fs), group), nil
}

func (fs FS) monDir(group, mon string) (string, error) {
	dir, err := fs.dir(group)
	if err != nil {
		return "", err
	}
	if err := ValidName(mon); err != nil {
		return "", err
	}
	return filepath.Join(dir, "mon_groups", mon), nil
}

// explain appends the kernel's own words for the last failure, info/last_cmd_status. It holds the status of the last
// resctrl operation of anybody; with another writer at work it may be somebody else's.
func (fs FS) explain(err error) error {
	s, rerr := root.Read(filepath.Join(string(fs), "info/last_cmd_status"))
	if s = strings.TrimSpace(s); rerr != nil || s == "" || s == "ok" {
		return err
	}
	return fmt.Errorf("%w (resctrl says: %s)", err, s)
}

// Mounted reports whether a resctrl filesystem is there: only it has info and schemata.
func (fs FS) Mounted() bool {
	_, err := os.Stat(filepath.Join(string(fs), "info"))
	return err == nil
}
