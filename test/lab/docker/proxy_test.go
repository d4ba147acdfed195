// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A program that ends, or that never serves, is no proxy: the error has the end of its log, and nothing is left running.
func TestProxyThatDoesNotServe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, want string
		patience     time.Duration
	}{
		"ends":  {"echo no such flag >&2; exit 3", "exit status 3", 30 * time.Second},
		"hangs": {"echo listening >&2; exec sleep 600", "not connected", 5 * time.Second}, // it is waited out
	} {
		d := &Daemon{Dir: t.TempDir(), Cgroup: "none"}
		program := filepath.Join(d.Dir, "proxy.sh")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		p, err := d.StartProxy(t.Context(), ProxyOptions{Program: program, Patience: c.patience})
		said := strings.Fields(c.script)[1]
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), said) {
			t.Errorf("%s: %v", name, err)
		}
		if p.Signal(syscall.SIGCONT) == nil {
			t.Errorf("%s: still there", name)
		}
		if err := p.End(syscall.SIGTERM); err != nil {
			t.Errorf("%s: ended again: %v", name, err)
		}
	}
}
