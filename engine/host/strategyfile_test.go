// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// A strategy file that is edited, half written, and then right again: the last good one holds in between.
func TestStrategyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "strategy.yaml")
	var got *strategy.Spec
	calls, refused := 0, 0
	f := &strategyFile{path: path, refused: func(string, error) { refused++ }, log: slog.New(slog.NewTextHandler(io.Discard, nil)), set: func(s *strategy.Spec, _ string) { got, calls = s, calls+1 }}
	f.look()
	put(t, path, "cpuBurstStrategy: {policy: auto}\n")
	f.look()
	if got == nil || calls != 1 {
		t.Fatalf("after creation: %v, %d calls", got, calls)
	}
	put(t, path, "cpuBurstStrategy: {polic")
	f.look()
	f.look()
	if calls != 1 || refused != 1 {
		t.Fatalf("half a file: %d calls, reported %d times", calls, refused)
	}
	put(t, path, "cpuBurstStrategy: {policy: cpuBurstOnly}\n")
	f.look()
	if calls != 2 || *got.CPUBurstStrategy.Policy != "cpuBurstOnly" {
		t.Fatalf("after repair: %d calls", calls)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.look()
	if got != nil || calls != 3 {
		t.Fatalf("after removal: %v, %d calls", got, calls)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
