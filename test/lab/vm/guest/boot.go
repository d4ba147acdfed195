// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

const newRoot = "/newroot"

// boot is PID 1 in the initramfs. It returns only on error.
func boot() error {
	if err := mountAll([]mount{
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
		{"proc", "/proc", "proc", 0, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
	}); err != nil {
		return err
	}
	cfg, err := readConfig()
	if err != nil {
		return err
	}
	if err := loadModules(guestcfg.ModuleDir); err != nil {
		return err
	}
	if cfg.Systemd {
		return bootSystemd(cfg)
	}
	return bootBare()
}

// bootBare makes a tmpfs the root: pivot_root, which containers need, is refused on the initramfs itself.
func bootBare() error {
	if err := mountAll([]mount{{"tmpfs", newRoot, "tmpfs", 0, "mode=755,size=75%"}}); err != nil {
		return err
	}
	for _, dir := range []string{"bin", "sbin", "usr/bin", "usr/sbin", "etc", "root", "run", "var/lib", "var/log", "opt", "home"} {
		if err := os.MkdirAll(filepath.Join(newRoot, dir), 0o755); err != nil {
			return fmt.Errorf("create root folder: %w", err)
		}
	}
	for from, to := range map[string]string{
		"/init":             guestcfg.Program,
		guestcfg.ConfigFile: guestcfg.ConfigFile,
		guestcfg.Busybox:    "/bin/busybox",
	} {
		if err := copyFile(from, newRoot+to); err != nil {
			return err
		}
	}
	for path, text := range map[string]string{
		"etc/passwd":      "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"etc/group":       "root:x:0:\nnogroup:x:65534:\n",
		"etc/hostname":    "koord-vm\n",
		"etc/hosts":       "127.0.0.1 localhost koord-vm\n::1 localhost\n",
		"etc/resolv.conf": "",
		"etc/os-release":  "ID=koord-vm\nNAME=\"koord-rt lab guest\"\n",
		"etc/machine-id":  machineID + "\n",
	} {
		if err := os.WriteFile(filepath.Join(newRoot, path), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return switchRoot(guestcfg.Program, "bare")
}

const machineID = "6b6f6f72642d72742d6c61622d766d31"

// switchRoot moves the root to newRoot with the mounted kernel filesystems and execs program there.
func switchRoot(program string, args ...string) error {
	for _, dir := range []string{"/dev", "/proc", "/sys"} {
		if err := os.MkdirAll(newRoot+dir, 0o755); err != nil {
			return fmt.Errorf("create %s: %w", dir, err)
		}
		if err := unix.Mount(dir, newRoot+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	err := errors.Join(
		unix.Chdir(newRoot),
		unix.Mount(".", "/", "", unix.MS_MOVE, ""),
		unix.Chroot("."),
		unix.Chdir("/"),
	)
	if err != nil {
		return fmt.Errorf("switch root: %w", err)
	}
	if err := unix.Exec(program, append([]string{program}, args...), defaultEnv()); err != nil {
		return fmt.Errorf("exec %s: %w", program, err)
	}
	return nil
}

func defaultEnv() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "USER=root", "LANG=C", "TERM=dumb", "TMPDIR=/tmp",
	}
}

// loadModules inserts every module of a folder; the host has sorted the names by dependency.
func loadModules(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list modules: %w", err)
	}
	for _, e := range entries {
		if err := loadModule(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// parameters of modules, by the end of their files' names: ifb makes two links by itself, that nobody asked for.
var parameters = map[string]string{"-ifb.ko": "numifbs=0"}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open module: %w", err)
	}
	defer f.Close()
	options := ""
	for name, o := range parameters {
		if strings.HasSuffix(path, name) {
			options = o
		}
	}
	if err := unix.FinitModule(int(f.Fd()), options, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s: %w", filepath.Base(path), err)
	}
	return nil
}
