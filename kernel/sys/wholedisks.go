// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"fmt"
	"strings"
)

// WholeDisk is a disk that requests end at.
type WholeDisk struct {
	// Name as in /proc/diskstats: "sda", "cciss!c0d0".
	Name         string
	Major, Minor uint32
}

// WholeDisks lists, in the order of names, the disks that requests go to in the end: no partitions, no stacked devices (device
// mapper, md), which would count a request twice, and nothing that lives in memory or in another disk's file (ram, zram, loop).
// Source: /sys/block (Documentation/ABI/stable/sysfs-block).
func (fs FS) WholeDisks() ([]WholeDisk, error) {
	names, err := fs.names("block")
	if err != nil {
		return nil, fmt.Errorf("read disks: %w", err)
	}
	var out []WholeDisk
	for _, name := range names {
		if virtual(name) {
			continue
		}
		if below, err := fs.names("block", name, "slaves"); err != nil || len(below) > 0 {
			continue
		}
		major, minor, err := fs.devAt("block", name, "dev")
		if err != nil {
			continue // a disk can vanish while the list is read
		}
		out = append(out, WholeDisk{Name: name, Major: uint32(major), Minor: uint32(minor)}) //nolint:gosec // parseDev bounds them
	}
	return out, nil
}

// virtual: a prefix and a number.
func virtual(name string) bool {
	for _, prefix := range [...]string{"loop", "ram", "zram"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			return true
		}
	}
	return false
}
