// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

// runBare is PID 1 in the tmpfs root.
func runBare(cfg guestcfg.Config) (guestcfg.Exit, error) {
	if err := setUp(cfg); err != nil {
		return guestcfg.Exit{}, err
	}
	return runCommand(cfg)
}

func setUp(cfg guestcfg.Config) error {
	err := mountAll([]mount{
		{"devpts", "/dev/pts", "devpts", 0, "mode=620,ptmxmode=666,gid=0"},
		{"tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777"},
		{"mqueue", "/dev/mqueue", "mqueue", 0, ""},
		{"tmpfs", "/run", "tmpfs", 0, "mode=755"},
		{"tmpfs", "/tmp", "tmpfs", 0, "mode=1777"},
		{"debugfs", "/sys/kernel/debug", "debugfs", 0, ""},
	})
	if err != nil {
		return err
	}
	// Shared propagation is what systemd sets on a node, and what container runtimes expect to find.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	if err := linkStandard(); err != nil {
		return err
	}
	if err := installApplets(); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("koord-vm")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	cgroups := mountCgroup2
	if cfg.CgroupV1 {
		cgroups = mountCgroup1
	}
	if err := cgroups(); err != nil {
		return err
	}
	if err := mountResctrl(); err != nil {
		return err
	}
	return placeFiles("/", cfg.Files)
}

func linkStandard() error {
	for name, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, name); err != nil && !os.IsExist(err) {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}

// installApplets lets busybox make its own links, so that /bin/sh and the usual tools are there.
func installApplets() error {
	p, err := os.StartProcess("/bin/busybox", []string{"busybox", "--install", "-s"}, &os.ProcAttr{
		Env: defaultEnv(), Files: []*os.File{nil, os.Stderr, os.Stderr},
	})
	if err != nil {
		return fmt.Errorf("start busybox: %w", err)
	}
	state, err := p.Wait()
	if err != nil {
		return fmt.Errorf("wait for busybox: %w", err)
	}
	if !state.Success() {
		return fmt.Errorf("install busybox: %s", state)
	}
	return nil
}

// loopbackUp is "ip link set lo up"; the guest has no other network.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("name loopback: %w", err)
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	return nil
}
