// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package listen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnix(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if _, err := Unix(path); err == nil || !strings.Contains(err.Error(), "answers") {
		t.Errorf("a second listener: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Unix(path) // the file of the dead one is replaced
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Unix(file); err == nil {
		t.Error("a file was replaced")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
}
