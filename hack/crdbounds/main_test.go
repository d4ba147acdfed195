// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun: quantities get their bounds, everything else stays; where there is no quantity, the pattern has changed and somebody must look.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const other, before, after = "pattern: ^[0-9]+$\n", "pattern: " + generated + "\n", "pattern: " + bounded + "\n"
	for name, text := range map[string]string{"a.yaml": before + other + before, "b.yaml": other, "c.txt": before} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a.yaml": after + other + after, "b.yaml": other, "c.txt": before} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if err := run(dir); err == nil || !strings.Contains(err.Error(), "no pattern of a quantity") {
		t.Errorf("nothing to bound: %v", err)
	}
	if err := run(filepath.Join(dir, "none")); err == nil {
		t.Error("no folder, and no error")
	}
}
