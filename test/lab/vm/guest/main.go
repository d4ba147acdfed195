// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command guest is init of the lab's virtual machines, and in systemd guests also the service that runs the command.
//
// Stages, each an exec or a service of the one before:
//
//	(none)  PID 1 in the initramfs: loads modules, builds the root filesystem, switches to it
//	bare    PID 1 in the tmpfs root: mounts, runs the command, writes the result, resets the machine
//	unit    service below systemd: the same without the mounts systemd has done
//
// Input is guestcfg.ConfigFile, output a tar stream on the disk guestcfg.OutSerial. It runs only inside a guest and
// imports nothing of this project but guestcfg.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

func main() {
	stage := ""
	if len(os.Args) > 1 {
		stage = os.Args[1]
	}
	if os.Getpid() != 1 && stage != "unit" {
		fmt.Fprintln(os.Stderr, "koord-vm: runs only as init of a lab guest")
		os.Exit(2)
	}
	var err error
	switch stage {
	case "bare":
		err = finish(runBare)
	case "unit":
		err = finish(runUnit)
	default:
		err = boot()
	}
	// The host sees a missing result and shows the console, so this line is the message.
	fmt.Fprintln(os.Stderr, "koord-vm: fatal:", err)
	resetMachine()
}

// finish runs one stage's work and writes whatever came of it to the output disk. It returns only on error.
func finish(run func(guestcfg.Config) (guestcfg.Exit, error)) error {
	cfg, err := readConfig()
	if err != nil {
		return err
	}
	exit, err := run(cfg)
	if errors.Is(err, errNoTimer) {
		return err // without a result: the host starts the machine anew
	}
	if err != nil {
		exit.Setup = err.Error()
	}
	if err := writeResult(exit); err != nil {
		return err
	}
	resetMachine()
	return errors.New("machine did not reset")
}

func readConfig() (cfg guestcfg.Config, err error) {
	data, err := os.ReadFile(guestcfg.ConfigFile)
	if err != nil {
		return cfg, fmt.Errorf("read config: %w", err)
	}
	if err := json.Unmarshal(data, &cfg); err != nil {
		return cfg, fmt.Errorf("parse config: %w", err)
	}
	return cfg, nil
}

// resetMachine ends the emulator, which runs with -no-reboot.
func resetMachine() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}
