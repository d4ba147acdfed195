// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vm

import (
	"context"
	"path/filepath"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Where a guest has what its command needs.
const (
	// GuestBin is for programs; it is the first folder of the PATH of Surroundings.
	GuestBin = "/disk/bin"
	// GuestCache is the parts' cache: the same folders, so nothing is built there.
	GuestCache = "/disk/cache"
)

// Carry adds parts to the files of a guest. given is how a program there finds them, for Surroundings; those of several calls may be
// joined.
func Carry(ctx context.Context, cache *parts.Cache, files map[string]string, names ...string) (given string, err error) {
	for _, name := range names {
		dir, err := cache.Get(ctx, name)
		if err != nil {
			return "", err
		}
		files[dir] = filepath.Join(GuestCache, filepath.Base(dir))
		given += name + "=" + files[dir] + " "
	}
	return given, nil
}

// Surroundings are the environment of a command that runs what was carried.
func Surroundings(given string) []string {
	return []string{
		// Threads that look for work on each of eight emulated CPUs cost more than they find. The shim gets four from containerd.
		"GOMAXPROCS=2",
		"KOORD_RT_CACHE=" + GuestCache, "KOORD_RT_PARTS=" + given, "PATH=" + GuestBin + ":/usr/sbin:/usr/bin:/sbin:/bin",
	}
}

// OnDisk is a command of the shell's whose temporary files lie on a real filesystem, not on a tmpfs: overlayfs and page cache behave
// as on a node.
func OnDisk(command string) []string {
	return []string{"sh", "-c", `mkdir -p /disk/tmp && mount --bind /disk/tmp /tmp && cd /tmp || exit 99
		[ -e /etc/hosts ] || echo 127.0.0.1 localhost >/etc/hosts
		exec ` + command}
}
