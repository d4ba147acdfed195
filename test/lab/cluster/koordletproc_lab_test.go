// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// process is a program under test; it ends with the test.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// startProgram starts a program; its output goes to a file, the end of which is shown if the test fails.
func startProgram(t *testing.T, log, name string, args ...string) *process {
	t.Helper()
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := &process{cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the parent-death signal is tied to the thread that forks
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the exit state is read where it matters
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		p.end(t)
		if t.Failed() {
			t.Logf("end of %s:\n%s", log, logEnd(log))
		}
	})
	return p
}

// end tells it to stop.
func (p *process) end(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		t.Errorf("%s did not end within 10 s", p.cmd.Path)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// eventually polls what another process brings about.
func eventually(t *testing.T, limit time.Duration, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", limit, err)
		}
	}
}

// sees waits until koordlet's metrics have a line that a pattern fits.
func (n *governed) sees(t *testing.T, pattern string) {
	t.Helper()
	line := regexp.MustCompile("(?m)^" + pattern + "$")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", n.metrics)
	}}
	defer transport.CloseIdleConnections()
	eventually(t, 20*time.Second, func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://koordlet/metrics", nil)
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && !line.Match(text) {
			err = fmt.Errorf("koordlet's metrics have no line %s", pattern)
		}
		return err
	})
}
