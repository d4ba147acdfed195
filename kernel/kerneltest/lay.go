// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest

import (
	"os"
	"path/filepath"
	"testing"
)

// Lay writes files below a new directory, which it returns. end is added to each content: "\n" where they are given without the one
// that the kernel's files have.
func Lay(t testing.TB, files map[string]string, end string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content+end), 0o644)) //nolint:gosec // a test's own directory
	}
	return dir
}
