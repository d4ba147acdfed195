// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// guestModules is what a guest loads when the kernel does not have it built in: its disks, the containers' root
// filesystem, networks between namespaces, loop devices, the I/O scheduler with cgroup weights, traffic control, and what connections are asked for by.
func guestModules() []string {
	return []string{
		"virtio_pci", "virtio_blk", "overlay", "veth", "bridge", "loop", "bfq", "sch_htb", "sch_tbf", "sch_ingress", "cls_u32", "act_mirred", "ifb", "tcp_diag",
	}
}

// moduleSet finds modules of one kernel by name and orders them by dependency.
type moduleSet struct {
	files   map[string]string // module name -> file, compressed or not
	builtin map[string]bool
	done    map[string]bool
	order   []string
	data    map[string][]byte
}

// collectModules writes the guest's modules and what they depend on, decompressed, as NN-name.ko into dir; the names
// sort in load order. tree is the kernel's module folder (lib/modules/RELEASE).
func collectModules(ctx context.Context, tree, dir string) error {
	set, err := scanModules(tree)
	if err != nil {
		return err
	}
	for _, name := range guestModules() {
		if err := set.add(ctx, name); err != nil {
			return err
		}
	}
	for i, name := range set.order {
		file := filepath.Join(dir, fmt.Sprintf("%02d-%s.ko", i, name))
		if err := os.WriteFile(file, set.data[name], 0o644); err != nil {
			return fmt.Errorf("write module: %w", err)
		}
	}
	return nil
}

func scanModules(tree string) (*moduleSet, error) {
	set := &moduleSet{files: map[string]string{}, builtin: map[string]bool{}, done: map[string]bool{}, data: map[string][]byte{}}
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base, _, ok := strings.Cut(d.Name(), ".ko"); ok && d.Type().IsRegular() {
			set.files[moduleName(base)] = path
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list modules: %w", err)
	}
	list, err := os.ReadFile(filepath.Join(tree, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("read built-in modules: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		set.builtin[moduleName(strings.TrimSuffix(filepath.Base(strings.TrimSpace(line)), ".ko"))] = true
	}
	return set, nil
}

// moduleName maps file names to the kernel's names, which use underscores only.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

func (s *moduleSet) add(ctx context.Context, name string) error {
	if s.done[name] || s.builtin[name] {
		return nil
	}
	s.done[name] = true
	path, ok := s.files[name]
	if !ok {
		return fmt.Errorf("collect module %s: neither a file nor built in", name)
	}
	data, err := readModule(ctx, path)
	if err != nil {
		return err
	}
	depends, err := moduleDepends(data)
	if err != nil {
		return fmt.Errorf("read module %s: %w", name, err)
	}
	for _, dep := range depends {
		if err := s.add(ctx, dep); err != nil {
			return err
		}
	}
	s.data[name] = data
	s.order = append(s.order, name)
	return nil
}

func readModule(ctx context.Context, path string) ([]byte, error) {
	if strings.HasSuffix(path, ".xz") {
		out, err := runTool(ctx, "/", "xz", "-dc", path)
		return []byte(out), err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	return data, nil
}

// moduleDepends reads the comma separated "depends=" entry of the .modinfo section: packages ship no modules.dep.
func moduleDepends(data []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("parse module: %w", err)
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("parse module: no .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read .modinfo: %w", err)
	}
	for _, entry := range strings.Split(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			names := strings.Split(list, ",")
			for i := range names {
				names[i] = moduleName(names[i])
			}
			return names, nil
		}
	}
	return nil, nil
}
