// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// noLedger: koordlet begins while its ledger's directory is read-only and nobody wants any more what its earlier life has set. It runs and
// says that it writes nothing, where and why, and what stands stays, since the way back could not be recorded. With the directory, it
// takes back what that life has set.
func noLedger(h *alone) {
	h.settled()
	h.a.end(syscall.SIGKILL)
	dir := ledger.Dir(h.run)
	writable := h.readOnly(dir)
	h.a.strategy("resourceQOSStrategy: {beClass: {cpuQOS: {enable: true, groupIdentity: -1}}}\n") // without a burst
	h.a.start()
	stands := h.treesOf(h.pods())
	h.eventually(20*time.Second, func() error { return h.a.saysOfItself("write", dir) })
	if code, text, err := h.a.health(); err != nil || code != http.StatusServiceUnavailable || !strings.Contains(text, dir) || !strings.Contains(text, "read-only") {
		h.t.Errorf("/healthz: %d %q, %v", code, text, err)
	}
	h.a.ticks(5, quietly)
	h.identical("five ticks without a ledger", stands, h.treesOf(h.pods()))
	h.a.lives()
	writable()
	h.burstOf(30*time.Second, "0")
	h.eventually(20*time.Second, func() error {
		if code, text, err := h.a.health(); err != nil || code != http.StatusOK {
			return fmt.Errorf("/healthz: %d %q, %w", code, text, err)
		}
		return h.a.saysOfItself("", "")
	})
	h.a.strategy(everywhere)
	h.settled()
}

// readOnly makes a directory that, until the result is called.
func (h *alone) readOnly(dir string) (writable func()) {
	h.t.Helper()
	err := unix.Mount(dir, dir, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		h.t.Fatalf("make %s read-only: %v", dir, err)
	}
	return func() {
		h.t.Helper()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			h.t.Fatal(err)
		}
	}
}

// saysOfItself: of its loops that tell of missing directories, koordlet's status has this one alone, for that path; name "" is none.
func (a *agent) saysOfItself(name, path string) error {
	e := status.Read(a.r.run, "/proc", "koordlet")
	if e.Agent == nil {
		return fmt.Errorf("koordlet has no status: %s", e.Err)
	}
	said := ""
	for _, l := range e.Agent.Loops {
		if l.Name != "write" && l.Name != "audit" {
			continue
		}
		if said = l.Name; l.State != status.StateDegraded || !strings.Contains(l.Err, path) {
			return fmt.Errorf("loop %+v, want it degraded, for %s", l, path)
		}
	}
	if said != name {
		return fmt.Errorf("koordlet tells of %q, want %q: %+v", said, name, e.Agent.Loops)
	}
	return nil
}

// health is what /healthz answers.
func (a *agent) health() (code int, text string, err error) {
	resp, err := over(filepath.Join(a.r.run, "koordlet-metrics.sock")).Get("http://koordlet/healthz")
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}
