// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cri"
)

// daemon is a child that serves CRI on a socket.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has been reaped
	log  string
}

// startDaemon starts a program in a process group of its own, so that an interrupt
// from the terminal leaves it to close.
func startDaemon(log, program string, args ...string) (*daemon, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	defer f.Close()
	d := &daemon{cmd: exec.Command(program, args...), done: make(chan struct{}), log: log}
	d.cmd.Stdout, d.cmd.Stderr = f, f
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		defer close(d.done)
		_ = d.cmd.Wait() // its log says more than its exit status
	}()
	return d, nil
}

// waitReady polls until the socket says RuntimeReady, the child ends or 3 min have passed.
func (d *daemon) waitReady(ctx context.Context, socket string) error {
	client, err := cri.Dial(socket)
	if err != nil {
		return err
	}
	defer client.Close()
	ready, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	go func() { // a child that dies ends the wait at once
		select {
		case <-d.done:
			cancel()
		case <-ready.Done():
		}
	}()
	if err := client.WaitReady(ready); err != nil {
		text, _ := os.ReadFile(d.log) // an empty text says enough
		return fmt.Errorf("start %s: %w; end of its log:\n%s", d.cmd.Path, err, last(text, 3000))
	}
	return nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// kill ends the child at once; again is no error.
func (d *daemon) kill() error {
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", d.cmd.Path, err)
	}
	<-d.done
	return nil
}
