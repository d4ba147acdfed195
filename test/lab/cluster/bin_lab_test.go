// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"os"
	"path/filepath"
	"testing"
)

// bin is where the binaries under test lie.
func bin(name string) string {
	if dir := os.Getenv("KOORD_RT_BIN"); dir != "" {
		return filepath.Join(dir, name)
	}
	return filepath.Join("..", "..", "..", "bin", name)
}

// read is a file's text.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// logEnd is the last 4 KiB of a log, or why there is none.
func logEnd(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}
