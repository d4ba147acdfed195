// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package probe

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/model/node"
)

// Release is the running kernel's version by uname(2).
func Release() (release string, major, minor int, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", 0, 0, fmt.Errorf("read kernel version: %w", err)
	}
	release = unix.ByteSliceToString(u.Release[:])
	major, minor, err = ParseRelease(release)
	return release, major, minor, err
}

// ParseRelease takes the first two numbers of the release that uname(2) tells: "6.18.44-fc-v669", "4.19.91-26.an7.x86_64" or "7.2-rc1".
func ParseRelease(release string) (major, minor int, err error) {
	left, rest, ok := strings.Cut(release, ".")
	if ok {
		end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(rest)
		}
		a, errA := strconv.ParseUint(left, 10, 16)
		b, errB := strconv.ParseUint(rest[:end], 10, 16)
		if errA == nil && errB == nil {
			return int(a), int(b), nil
		}
	}
	return 0, 0, fmt.Errorf("%.60q is no kernel version", release)
}

// cgroupVersion is 2 when the directory is a cgroup2 mount, by its magic number (include/uapi/linux/magic.h) or, for
// trees that only look like one, by cgroup.controllers. A tmpfs with controllers in it, hybrid or not, is 1.
func cgroupVersion(dir string) (node.CgroupVersion, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("read cgroup version of %s: %w", dir, err)
	}
	if int64(st.Type) == unix.CGROUP2_SUPER_MAGIC {
		return node.CgroupV2, nil
	}
	switch _, err := os.Stat(dir + "/cgroup.controllers"); {
	case err == nil:
		return node.CgroupV2, nil
	case errors.Is(err, os.ErrNotExist):
		return node.CgroupV1, nil
	default:
		return 0, fmt.Errorf("read cgroup version of %s: %w", dir, err)
	}
}
