// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/engine/enginetest"
)

// A start that fails half way gives back what it has opened: the lock is free, in the same process too.
func TestStartThatFailsGivesBack(t *testing.T) {
	t.Parallel()
	cfg := on(t, enginetest.New(t, "6.12", appCgroup))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.StateDir = filepath.Join(file, "state") // the handoff, which comes late, cannot be prepared
	_, err := New(t.Context(), Loaded{Config: cfg}, "v1", "koordlet v1", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err == nil || !strings.Contains(err.Error(), "prepare handoff") {
		t.Fatalf("%v, want that of the handoff", err)
	}
	held, err := lock.Acquire(lock.Path(cfg.RunDir, Writer))
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(); err != nil {
		t.Error(err)
	}
}
