// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
)

// maxBelow bounds how deep a tree of cgroups is looked through.
const maxBelow = 16

// Populated reports whether a process is left in the cgroup at path or below it. A cgroup that does not exist has none. On v2
// that is one file, which the root cgroup does not have; on v1 the tree is looked through.
func (fs *FS) Populated(path string) (bool, error) {
	if err := root.CheckRel(path); err != nil {
		return false, fmt.Errorf("look for processes: %w", err)
	}
	dir := cmp.Or(fs.cpu, fs.memory) + "/" + strings.Trim(path, "/")
	b := root.Get()
	defer b.Put()
	raw, err := b.Read(dir, "/cgroup.events")
	if gone(err) {
		return occupied(b, dir, maxBelow)
	}
	if err != nil {
		return false, fmt.Errorf("look for processes: %w", err)
	}
	yes, ok := parsePopulated(raw)
	if !ok {
		return false, fmt.Errorf("parse %s/cgroup.events: %w", dir, scan.ErrFormat)
	}
	return yes, nil
}

// parsePopulated reads PATH/cgroup.events, of the group with its descendants:
//
//	populated 1
//	frozen 0
//
// Documentation/admin-guide/cgroup-v2.rst, "Core Interface Files".
func parsePopulated(b []byte) (yes, ok bool) {
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		key, rest := scan.Field(line)
		if string(key) != "populated" {
			continue
		}
		n, _, ok := scan.UintField(rest)
		return n > 0, ok
	}
	return false, false
}

// occupied looks for an id in cgroup.procs of a directory and of those below it.
func occupied(b *root.Buffer, dir string, deep int) (bool, error) {
	raw, err := b.Read(dir, "/cgroup.procs")
	switch {
	case gone(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for processes: %w", err)
	case len(raw) > 0 || deep == 0:
		return true, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("look for processes: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if yes, err := occupied(b, dir+"/"+e.Name(), deep-1); yes || err != nil {
			return yes, err
		}
	}
	return false, nil
}
