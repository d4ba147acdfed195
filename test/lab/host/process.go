// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	killSignal = syscall.SIGKILL
	termSignal = syscall.SIGTERM
)

// process is a child whose end is watched.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has been reaped
}

// startProcess starts a daemon in a process group of its own, so that an interrupt
// from the terminal leaves it to Close.
func startProcess(log, path, name string, args ...string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer f.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = f, f
	// The machine's storage.conf would win over a runtime's own configuration where that has a default.
	cmd.Env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), "CONTAINERS_STORAGE_CONF="+filepath.Join(filepath.Dir(log), "storage.conf"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // its exit status tells nothing that its log does not
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end signals containerd and waits; after limit it is killed.
func (h *Host) end(sig syscall.Signal, limit time.Duration) error {
	if h.process == nil {
		return nil
	}
	p := h.process
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal containerd: %w", err)
	}
	select {
	case <-p.done:
	case <-time.After(limit):
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill containerd: %w", err)
		}
		<-p.done
	}
	h.process = nil
	return nil
}

// tail returns the last n bytes of a file, or why there are none.
func tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(data) > n {
		data = data[len(data)-n:]
	}
	return string(data)
}
