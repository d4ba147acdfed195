// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

const unitName = "koord-vm.service"

// unitText runs the command once the system is up. Type=exec, not oneshot, so that the system's state becomes
// "running" as on a node. Delegate makes systemd keep every controller enabled from the root down.
const unitText = `[Unit]
Description=koord-rt lab command
After=basic.target dbus.service
Wants=dbus.service

[Service]
Type=exec
ExecStart=` + guestcfg.Program + ` unit
Delegate=yes
TimeoutSec=infinity
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console

[Install]
WantedBy=multi-user.target
`

// bootSystemd prepares the disk's root filesystem (the emulator discards all changes) and hands over to systemd.
func bootSystemd(cfg guestcfg.Config) error {
	dev, err := findDisk(guestcfg.RootSerial)
	if err != nil {
		return err
	}
	if err := mountAll([]mount{{dev, newRoot, "ext4", 0, ""}}); err != nil {
		return err
	}
	if err := placeFiles(newRoot, cfg.Files); err != nil {
		return err
	}
	for from, to := range map[string]string{"/init": guestcfg.Program, guestcfg.ConfigFile: guestcfg.ConfigFile} {
		if err := copyFile(from, newRoot+to); err != nil {
			return err
		}
	}
	units := filepath.Join(newRoot, "etc/systemd/system")
	wants := filepath.Join(units, "multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return fmt.Errorf("create unit folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(units, unitName), []byte(unitText), 0o644); err != nil {
		return fmt.Errorf("write unit: %w", err)
	}
	if err := os.Symlink("../"+unitName, filepath.Join(wants, unitName)); err != nil {
		return fmt.Errorf("enable unit: %w", err)
	}
	return switchRoot("/usr/lib/systemd/systemd")
}

// runUnit is the service below systemd, which has mounted everything but resctrl.
func runUnit(cfg guestcfg.Config) (guestcfg.Exit, error) {
	if !cfg.CgroupV1 {
		if err := enableControllers(); err != nil {
			return guestcfg.Exit{}, err
		}
	}
	if err := mountResctrl(); err != nil {
		return guestcfg.Exit{}, err
	}
	return runCommand(cfg)
}
