// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed qemu.go
var qemuSource string

// minQEMU is the first major version without the SMP miscompilation that panics guests (design/lab.md, lane 3).
const minQEMU = 10

// Emulator is an unpacked qemu-system-x86_64 with its own C library and firmware; it does not use the host's.
type Emulator struct {
	Version string
	// Command is the program and first arguments: the unpacked loader, its library path and the emulator.
	Command []string
	// Env is needed beside Command: where the emulator finds its loadable modules.
	Env []string
}

// Emulator provides qemu from the suite VM_SUITE_QEMU on top of VM_SUITE_QEMU_BASE of versions.env.
func (s Store) Emulator(ctx context.Context) (Emulator, error) {
	suite, err := s.suite("VM_SUITE_QEMU")
	if err != nil {
		return Emulator{}, err
	}
	base, err := s.suite("VM_SUITE_QEMU_BASE")
	if err != nil {
		return Emulator{}, err
	}
	sources := []string{base, aptSource, qemuSource}
	dir, err := s.ensure(ctx, "vm-qemu", suite, sources, func(ctx context.Context, dir string) error {
		return buildQEMU(ctx, dir, base, suite)
	})
	if err != nil {
		return Emulator{}, err
	}
	version, err := os.ReadFile(filepath.Join(dir, "version"))
	if err != nil {
		return Emulator{}, fmt.Errorf("read emulator version: %w", err)
	}
	e := emulatorAt(filepath.Join(dir, "root"))
	e.Version = strings.TrimSpace(string(version))
	return e, nil
}

func emulatorAt(root string) Emulator {
	lib := filepath.Join(root, "lib/x86_64-linux-gnu")
	usrLib := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	return Emulator{
		Command: []string{
			filepath.Join(lib, "ld-linux-x86-64.so.2"), "--library-path", lib + ":" + usrLib,
			filepath.Join(root, "usr/bin/qemu-system-x86_64"),
			"-L", filepath.Join(root, "usr/share/qemu"), "-L", filepath.Join(root, "usr/share/seabios"),
		},
		Env: []string{"QEMU_MODULE_DIR=" + filepath.Join(usrLib, "qemu")},
	}
}

func buildQEMU(ctx context.Context, dir, base, suite string) (err error) {
	work := filepath.Join(dir, "work")
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	a, err := openArchive(ctx, filepath.Join(work, "apt"), base, suite)
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	if err := a.unpackClosure(ctx, root, "qemu-system-x86"); err != nil {
		return err
	}
	e := emulatorAt(root)
	out, err := runTool(ctx, dir, e.Command[0], append(e.Command[1:], "--version")...)
	if err != nil {
		return err
	}
	version, major, err := qemuVersion(out)
	if err != nil {
		return err
	}
	if major < minQEMU {
		return fmt.Errorf("suite %s carries qemu %s, need %d or later", suite, version, minQEMU)
	}
	return os.WriteFile(filepath.Join(dir, "version"), []byte(version+"\n"), 0o644)
}

// qemuVersion reads "QEMU emulator version 10.0.2 (...)".
func qemuVersion(out string) (version string, major int, err error) {
	_, rest, ok := strings.Cut(out, "version ")
	fields := strings.Fields(rest)
	if !ok || len(fields) == 0 {
		return "", 0, fmt.Errorf("parse qemu version: %q", out)
	}
	v, ok := majorMinor(fields[0])
	if !ok {
		return "", 0, fmt.Errorf("parse qemu version: %q", fields[0])
	}
	return fields[0], v[0], nil
}
