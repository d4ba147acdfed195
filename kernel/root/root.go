// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package root says where the kernel's filesystems are mounted and reads and writes their small files.
//
// Every other kernel package takes a Roots value, so that a test can put a fake tree in its place. Paths below a root
// come in as "/kubepods/…" and are joined by Join, which refuses to leave the root. The package imports the standard
// library and golang.org/x/sys only.
package root

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Roots are absolute directories without a trailing slash.
type Roots struct {
	// Cgroup is the cgroup2 mount, or on v1 and hybrid the directory that holds the controllers' mounts.
	Cgroup  string
	Proc    string
	Sys     string
	Resctrl string
	Dev     string
}

// Default is where systemd and every distribution mount them.
func Default() Roots {
	return Roots{Cgroup: "/sys/fs/cgroup", Proc: "/proc", Sys: "/sys", Resctrl: "/sys/fs/resctrl", Dev: "/dev"}
}

// ErrOutside is wrapped when a path would leave its root.
var ErrOutside = errors.New("path leaves its root")

// Join appends a path to a root. rel may start with a slash; a ".." element, a NUL or an over-long path is refused.
func Join(base, rel string) (string, error) {
	if err := CheckRel(rel); err != nil {
		return "", err
	}
	if rel = strings.Trim(rel, "/"); rel == "" {
		return base, nil
	}
	if isClean(rel) && !strings.HasSuffix(base, "/") {
		return base + "/" + rel, nil
	}
	return filepath.Clean(base + "/" + rel), nil
}

// JoinFile is Join and the name of a file in there.
func JoinFile(base, rel, name string) (string, error) {
	rest := strings.Trim(rel, "/")
	if CheckRel(rel) == nil && rest != "" && isClean(rest) && !strings.HasSuffix(base, "/") {
		return base + "/" + rest + "/" + name, nil
	}
	dir, err := Join(base, rel)
	if err != nil {
		return "", err
	}
	return dir + "/" + name, nil
}

// isClean reports a path that filepath.Clean would leave as it is, but for slashes at its ends and "..".
func isClean(rel string) bool {
	for rest := rel; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		if part == "" || part == "." {
			return false
		}
	}
	return true
}

// CheckRel refuses a relative path that could leave the root or that no kernel accepts. It does not allocate on success.
func CheckRel(rel string) error {
	if len(rel) >= maxPath || strings.IndexByte(rel, 0) >= 0 {
		return fmt.Errorf("%w: %.64q…: NUL or longer than %d bytes", ErrOutside, rel, maxPath)
	}
	for rest := rel; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		if part == ".." {
			return fmt.Errorf("%w: %q", ErrOutside, rel)
		}
	}
	return nil
}

// BootID is the random id of this boot, of /proc/sys/kernel/random/boot_id.
func (r Roots) BootID() (string, error) {
	b, err := Read(r.Proc + "/sys/kernel/random/boot_id")
	return strings.TrimSpace(b), err
}

// Inode is the inode number of a directory. For a cgroup it is also the cgroup's id, new for every mkdir.
func Inode(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", dir, err)
	}
	return st.Ino, nil
}
