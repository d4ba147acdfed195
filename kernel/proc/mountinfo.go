// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Mounts are the kernel interfaces that a mount namespace shows.
type Mounts struct {
	// V1 maps each cgroup v1 controller ("cpu", "memory", …) to its hierarchy's mount point; named hierarchies
	// ("name=systemd") keep their prefix.
	V1 map[string]string
	// V2 is the mount point of cgroup2, empty when not mounted; on a hybrid node both are set.
	V2 string
	// RecursiveProt is cgroup2's memory_recursiveprot option (Linux 5.7).
	RecursiveProt bool
	// Resctrl is the mount point of resctrl and ResctrlOptions its options ("cdp", "mba_MBps", …).
	Resctrl        string
	ResctrlOptions []string
}

// Mounts reads /proc/self/mountinfo. Lines that cannot be read are in the error; the others count.
func (fs FS) Mounts() (Mounts, error) {
	path := fs.Path("self", "mountinfo")
	f, err := os.Open(path)
	if err != nil {
		return Mounts{}, fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close()
	m, err := ParseMountinfo(f)
	if err != nil {
		return m, fmt.Errorf("parse %s: %w", path, err)
	}
	return m, nil
}

// ParseMountinfo parses lines like
//
//	32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
//	36 31 0:33 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
//
// (Documentation/filesystems/proc.rst, 3.5). Where a thing is mounted twice, the first mount of its root counts; bind
// mounts of inner directories do not. In a private cgroup namespace the host's root shows as "/../..".
//
// A node has a line or two for each container, of half a kilobyte each: the lines of other filesystems leave nothing behind.
func ParseMountinfo(r io.Reader) (Mounts, error) {
	m := Mounts{V1: map[string]string{}}
	var errs []error
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, firstLine), longestLine)
	for lines.Scan() {
		line := lines.Bytes()
		if _, tail, ok := bytes.Cut(line, []byte(" - ")); ok && !wanted(tail) || len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := m.add(string(line)); err != nil {
			errs = append(errs, err)
		}
	}
	return m, errors.Join(append(errs, lines.Err())...)
}

// The kernel's paths and options have at most a page each, before some letters become four.
const (
	firstLine   = 4 << 10
	longestLine = 1 << 20
)

// wanted reports whether what follows the separator begins with a filesystem of Mounts.
func wanted(tail []byte) bool {
	name, _, _ := bytes.Cut(tail, []byte(" "))
	switch string(name) {
	case "cgroup", "cgroup2", "resctrl":
		return true
	}
	return false
}

func (m *Mounts) add(line string) error {
	left, right, ok := strings.Cut(line, " - ")
	fields, tail := strings.Fields(left), strings.Fields(right)
	if !ok || len(fields) < 6 || len(tail) < 3 {
		return fmt.Errorf("%.80q is no mountinfo line", line)
	}
	root, point, options := fields[3], unescape(fields[4]), strings.Split(tail[2], ",")
	if root != "/" && !strings.HasPrefix(root, "/..") {
		return nil
	}
	switch tail[0] {
	case "cgroup2":
		if m.V2 == "" {
			m.V2, m.RecursiveProt = point, slices.Contains(options, "memory_recursiveprot")
		}
	case "resctrl":
		if m.Resctrl == "" {
			m.Resctrl, m.ResctrlOptions = point, slices.DeleteFunc(options, func(o string) bool { return o == "rw" || o == "ro" })
		}
	case "cgroup":
		for _, o := range options {
			if _, seen := m.V1[o]; !seen && v1Controller(o) {
				m.V1[o] = point
			}
		}
	}
	return nil
}

// v1Controller tells controllers from the options of the mount itself.
func v1Controller(option string) bool {
	switch option {
	case "rw", "ro", "noprefix", "clone_children", "xattr", "cpuset_v2_mode", "none", "favordynmods", "nofavordynmods":
		return false
	}
	return !strings.HasPrefix(option, "release_agent=")
}

// unescape undoes the octal escapes of space, tab, newline and backslash (fs/proc_namespace.c, mangle).
func unescape(s string) string {
	if !strings.Contains(s, "\\") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
