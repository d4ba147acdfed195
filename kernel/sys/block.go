// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/root"
)

// Disks maps the names of block devices to "major:minor", each with and without "/dev/": disks and their partitions
// ("sda", "/dev/sda1") and device-mapper names ("/dev/mapper/vg-lv").
//
// A partition carries its disk's number: the IO controllers know whole devices only and answer ENODEV to the number of
// a partition (block/blk-cgroup.c, blkg_conf_open_bdev), so a limit asked for /dev/sda1 binds sda.
func (fs FS) Disks() (map[string]string, error) {
	names, err := fs.names("block")
	if err != nil {
		return nil, fmt.Errorf("read disks: %w", err)
	}
	disks := map[string]string{}
	var errs []error
	for _, name := range names {
		major, minor, err := fs.devAt("block", name, "dev")
		if err != nil {
			// A disk can vanish while the list is read.
			if !errors.Is(err, iofs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		number := fmt.Sprintf("%d:%d", major, minor)
		all, err := fs.diskNames(name)
		if err != nil {
			errs = append(errs, err)
		}
		for _, n := range all {
			disks[n] = number
			disks["/dev/"+n] = number
		}
	}
	return disks, errors.Join(errs...)
}

// diskNames are a disk's own name, those of its partitions and its device-mapper name. sysfs writes '/' as '!'
// (cciss!c0d0).
func (fs FS) diskNames(disk string) ([]string, error) {
	out := []string{strings.ReplaceAll(disk, "!", "/")}
	entries, err := fs.names("block", disk)
	if err != nil {
		return out, err
	}
	for _, e := range entries {
		if _, err := root.Read(fs.Path("block", disk, e, "partition")); err == nil {
			out = append(out, strings.ReplaceAll(e, "!", "/"))
		}
	}
	if dm, err := root.Read(fs.Path("block", disk, "dm/name")); err == nil && dm != "" {
		out = append(out, "mapper/"+dm)
	}
	return out, nil
}

// IOSchedulers maps each disk ("sda") to its active scheduler ("bfq", "none"), from block/*/queue/scheduler
// (Documentation/ABI/stable/sysfs-block).
func (fs FS) IOSchedulers() (map[string]string, error) {
	names, err := fs.names("block")
	if err != nil {
		return nil, fmt.Errorf("read IO schedulers: %w", err)
	}
	out := map[string]string{}
	for _, name := range names {
		if s, err := root.Read(fs.Path("block", name, "queue/scheduler")); err == nil {
			out[name] = activeScheduler(s)
		}
	}
	return out, nil
}

// activeScheduler finds the bracketed word of "none [mq-deadline] bfq"; a file without brackets names only one.
func activeScheduler(s string) string {
	if _, rest, ok := strings.Cut(s, "["); ok {
		if name, _, ok := strings.Cut(rest, "]"); ok {
			return strings.TrimSpace(name)
		}
	}
	return strings.TrimSpace(s)
}
