// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/daemon/handoff"
)

// Loops of the program's own that hang are told at once, and are a reason to start anew only when the program says so.
func TestOwnLoopsThatHang(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	h, err := New(t.Context(), m.options(t, func(func()) {}))
	if err != nil {
		t.Fatal(err)
	}
	var hung, dead error
	if err := h.Extend(Extension{Hung: func() error { return hung }, Dead: func() error { return dead }}); err != nil {
		t.Fatal(err)
	}
	h.Engine.Joined(true)
	if code, text := h.asked(); code != http.StatusOK || h.alive() != nil {
		t.Errorf("/healthz: %d %s; the watchdog: %v", code, text, h.alive())
	}
	hung = errors.New("a step hangs")
	if code, text := h.asked(); code != http.StatusServiceUnavailable || !strings.Contains(text, hung.Error()) || h.alive() != nil {
		t.Errorf("/healthz: %d %s; the watchdog: %v", code, text, h.alive())
	}
	if dead = hung; !errors.Is(h.alive(), dead) {
		t.Errorf("the watchdog: %v", h.alive())
	}
	if err := h.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// A strategy's copy that a power cut has torn is told at the boot that finds it, and costs nothing else.
func TestTornCopyIsTold(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	kept := filepath.Join(m.cfg.StateDir, handoff.StrategyFile)
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := New(t.Context(), m.options(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	told := h.Engine.Status().Problems
	if len(told) != 1 || told[0].Where != kept {
		t.Errorf("told: %+v", told)
	}
	if err := h.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}
