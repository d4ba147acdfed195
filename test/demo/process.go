// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/test/lab/child"
)

// process is one of our daemons.
type process struct {
	name   string
	log    string // file of its output
	cmd    *exec.Cmd
	exited <-chan struct{}
}

// launch starts a daemon.
func launch(name, logFile string, args ...string) (*process, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(binary(name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: an interrupt from the terminal leaves it to close.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	exited, err := child.Start(cmd, syscall.SIGTERM)
	if err != nil {
		return nil, err
	}
	return &process{name: name, log: logFile, cmd: cmd, exited: exited}, nil
}

// ready waits until the daemon's status file says that it works, as long as an emulated machine beside others may need.
func (p *process) ready(ctx context.Context, runDir string, works func(*status.Status) bool) error {
	return poll(ctx, time.Minute, func() error {
		if p.ended() {
			return fmt.Errorf("%s ended: %s", p.name, p.tail())
		}
		entries, err := status.ReadAll(runDir, "/proc")
		if err != nil {
			return err
		}
		for i := range entries {
			if s := &entries[i].Status; s.PID == p.cmd.Process.Pid && works(s) {
				return nil
			}
		}
		return fmt.Errorf("%s is not connected to containerd yet", p.name)
	})
}

// ended reports whether the daemon is gone.
func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// tail is the end of the daemon's log, for errors.
func (p *process) tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

// stop ends the daemon; one that never was, or has been stopped, is no error.
func (p *process) stop() error {
	if p == nil || p.ended() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(time.Minute):
		err := p.cmd.Process.Kill()
		<-p.exited
		return errors.Join(fmt.Errorf("%s did not end within a minute of SIGTERM", p.name), err)
	}
}
