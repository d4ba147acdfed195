// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/child"
)

// process is a child with a process group of its own that dies with this process.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done <-chan struct{} // closed when the child has been reaped
}

// startProcess starts a daemon; its output is appended to log. The parent-death signal is
// tied to the thread that forks, so that thread is kept until the child ends.
func startProcess(log, name string, args ...string) (*process, error) {
	return startProcessEnv(log, nil, name, args...)
}

// startProcessEnv is startProcess with variables beside this process's.
func startProcessEnv(log string, env []string, name string, args ...string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer f.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ended, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	return &process{name: name, log: log, cmd: cmd, done: ended}, nil
}

func (p *process) pid() int {
	if p == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// end signals the process group and waits; after limit the group is killed.
func (p *process) end(sig syscall.Signal, limit time.Duration) error {
	if p == nil {
		return nil
	}
	if err := syscall.Kill(-p.pid(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(limit):
	}
	if err := syscall.Kill(-p.pid(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// alive is a context that ends with ctx, after limit, or when the process ends.
func (p *process) alive(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	go func() {
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// failed adds the end of the process's log to an error.
func (p *process) failed(err error) error {
	return fmt.Errorf("%w; end of %s:\n%s", err, p.log, tail(p.log, 3000))
}

// poll calls try every 50 ms until it succeeds or ctx ends.
func poll(ctx context.Context, what string, try func(context.Context) error) error {
	for {
		begun := time.Now()
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last: %w", what, ctx.Err(), err)
		case <-time.After(lab.Pause(time.Since(begun), 50*time.Millisecond)):
		}
	}
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

// ResidentMiB is a process's VmRSS, 0 if it is gone.
func ResidentMiB(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	var kib int
	_, line, _ := strings.Cut(string(data), "VmRSS:")
	if _, err := fmt.Sscan(line, &kib); err != nil {
		return 0
	}
	return kib >> 10
}
