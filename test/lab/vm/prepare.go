// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

const guestPackage = "github.com/koord-rt/koord-rt/test/lab/vm/guest"

// Files in the work folder of one guest.
const (
	initramfsFile = "initramfs.cpio"
	diskFile      = "disk.img"
	outFile       = "out.img"
	slowFile      = "slow.img"
	consoleFile   = "console.log" // in the output folder
)

// prepare fills the work folder: the guest's program and configuration as initramfs, its disk and an empty output disk.
func (m machine) prepare(ctx context.Context, work string, o Options) error {
	files, err := makeDisk(ctx, work, o)
	if err != nil {
		return err
	}
	cfg := guestcfg.Config{
		Systemd: o.Flavour == Systemd, CgroupV1: o.CgroupV1, Command: o.Command, Env: o.Env, Files: files,
		Seconds: o.guestSeconds(), Tee: true,
	}
	program := filepath.Join(work, "guest")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, guestPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build guest program: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := m.writeInitramfs(filepath.Join(work, initramfsFile), program, cfg); err != nil {
		return err
	}
	if o.SlowDisk > 0 {
		if err := makeSparse(filepath.Join(work, slowFile), slowMiB); err != nil {
			return err
		}
	}
	return makeSparse(filepath.Join(work, outFile), outMiB)
}

func (m machine) writeInitramfs(path, program string, cfg guestcfg.Config) (err error) {
	doc, err := json.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("encode guest config: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create initramfs: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	c := newCPIO(f)
	err = errors.Join(
		c.add("dev", cpioDir, nil),
		c.addDevice("dev/console", 5, 1), // without it the kernel gives init no output
		c.addFile("init", cpioProgram, program),
		c.add(strings.TrimPrefix(guestcfg.ConfigFile, "/"), cpioFile, doc),
		c.add(strings.TrimPrefix(guestcfg.ModuleDir, "/"), cpioDir, nil),
	)
	if err != nil {
		return err
	}
	modules, err := filepath.Glob(filepath.Join(m.kernel.Modules, "*.ko"))
	if err != nil {
		return fmt.Errorf("list modules: %w", err)
	}
	for _, file := range modules {
		name := strings.TrimPrefix(guestcfg.ModuleDir, "/") + "/" + filepath.Base(file)
		if err := c.addFile(name, cpioFile, file); err != nil {
			return err
		}
	}
	if m.busybox != "" {
		if err := c.addFile(strings.TrimPrefix(guestcfg.Busybox, "/"), cpioProgram, m.busybox); err != nil {
			return err
		}
	}
	return c.close()
}

func makeSparse(path string, mib int) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create disk: %w", err)
	}
	if err := errors.Join(f.Truncate(int64(mib)<<20), f.Close()); err != nil {
		return fmt.Errorf("size disk: %w", err)
	}
	return nil
}
