// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/folder"
)

// closeLimit bounds Close as a whole, of which a runtime that hangs may take half a minute by itself.
const closeLimit = 2 * time.Minute

// Close removes all pods, stops containerd and its shims, and removes what they left:
// processes, cgroups, mounts and the folder. It may be called at any state, again too.
func (h *Host) Close() error {
	if h.Dir == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	groups := runcCgroups(h.Runc)
	var errs []error
	if h.process != nil && h.cri != nil {
		soft, stop := context.WithTimeout(ctx, 20*time.Second)
		// What this leaves over, a runtime that hangs included, the steps below remove.
		_ = h.cri.RemoveAllPods(soft)
		stop()
	}
	errs = append(errs, h.Stop())
	if h.cri != nil {
		errs = append(errs, h.cri.Close())
		h.cri = nil
	}
	errs = append(errs, labs().Purge(ctx, h.Dir, groups...))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close lab host: %w", err)
	}
	h.Paths = Paths{}
	return nil
}

// labs are the folders of Hosts.
func labs() *folder.Kind {
	return &folder.Kind{
		Prefix: "krt", Uses: uses,
		Cgroups: func(dir string) []string { return runcCgroups(filepath.Join(dir, "runc")) },
	}
}

// RemoveStale removes the folders, processes, cgroups and mounts of Hosts whose owner
// died without Close.
func RemoveStale(ctx context.Context) error { return labs().RemoveStale(ctx) }

// runcCgroups reads the cgroups of all containers from runc's state files; a state
// file that vanishes or is being written is skipped.
func runcCgroups(root string) []string {
	files, _ := filepath.Glob(filepath.Join(root, "*", "*", "state.json")) // the pattern is constant
	var out []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		var state struct {
			CgroupPaths map[string]string `json:"cgroup_paths"`
		}
		if json.Unmarshal(data, &state) != nil {
			continue
		}
		for _, p := range state.CgroupPaths {
			if p != "" && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// uses recognises the runtime of the folder: containerd and its shims by an argument that
// is the folder's socket or configuration, CRI-O and its monitors by one below it.
func uses(dir string, args []string) bool {
	socket, config := filepath.Join(dir, "containerd.sock"), filepath.Join(dir, "config.toml")
	return strings.HasPrefix(filepath.Base(args[0]), "containerd") &&
		(slices.Contains(args[1:], socket) || slices.Contains(args[1:], config)) || usesCRIO(dir, args)
}
