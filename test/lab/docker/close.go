// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/folder"
)

// labs are the folders of Daemons.
func labs() *folder.Kind { return &folder.Kind{Prefix: "krd", Uses: uses, Cgroups: sliceDirs} }

// slice names a folder's root of control groups under systemd, which reads a dash as a level.
func slice(dir string) string { return strings.ReplaceAll(folder.Cgroup(dir), "-", "_") + ".slice" }

// sliceDirs are where the slice of a folder may be.
func sliceDirs(dir string) (out []string) {
	tree, err := cgroups.Detect()
	if err != nil {
		return nil // Purge finds the same error
	}
	for _, m := range tree.Mounts() {
		out = append(out, filepath.Join(m, slice(dir)))
	}
	return out
}

// Close stops dockerd and removes what it left: containers, processes, cgroups, mounts and the folder. It may be called at
// any state, again too.
func (d *Daemon) Close() error {
	if d.Dir == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := errors.Join(d.Kill(), d.containerd.end(syscall.SIGKILL, 15*time.Second), labs().Purge(ctx, d.Dir)); err != nil {
		return fmt.Errorf("close lab dockerd: %w", err)
	}
	d.Dir = ""
	return nil
}

// RemoveStale removes what Daemons left whose owner died without Close.
func RemoveStale(ctx context.Context) error { return labs().RemoveStale(ctx) }

// uses recognises dockerd, containerd and the shims of the folder: programs of Docker that have a path below it in their
// command line.
func uses(dir string, args []string) bool {
	name := filepath.Base(args[0])
	return (name == "dockerd" || strings.HasPrefix(name, "containerd")) && strings.Contains(strings.Join(args[1:], " "), dir+"/")
}
