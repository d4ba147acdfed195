// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/child"
)

// process is a child whose end is watched.
type process struct {
	cmd  *exec.Cmd
	done <-chan struct{} // closed when the child has been reaped
}

// launch starts a daemon of the part, in a process group of its own, so that an interrupt from the terminal leaves it to
// Close.
func (d *Daemon) launch(name string, args ...string) (*process, error) {
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(d.Bin, name), args...)
	cmd.Env = d.environ()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return start(cmd)
}

func start(cmd *exec.Cmd) (*process, error) {
	ended, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	return &process{cmd: cmd, done: ended}, nil
}

// end signals the process and waits; after limit it is killed. A nil process has ended.
func (p *process) end(sig syscall.Signal, limit time.Duration) error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.cmd.Path, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(limit):
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.cmd.Path, err)
	}
	<-p.done
	return nil
}
