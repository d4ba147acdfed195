// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestMergeEnv(t *testing.T) {
	t.Parallel()
	got := mergeEnv([]string{"PATH=/bin", "HOME=/root"}, []string{"PATH=/opt", "NEW=1"})
	if want := []string{"HOME=/root", "PATH=/opt", "NEW=1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLookPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/nowhere:" + dir}
	if got, err := lookPath("program", env); err != nil || got != program {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := lookPath("./other", env); err != nil || got != "./other" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := lookPath("absent", env); err == nil {
		t.Errorf("got %q, want an error", got)
	}
}
