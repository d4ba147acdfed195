// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
)

// Files lie where their names say, with the end that was asked for.
func TestLay(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a/b/c": "1", "d": ""}
	for _, end := range []string{"", "\n"} {
		dir := kerneltest.Lay(t, files, end)
		for name, want := range map[string]string{"a/b/c": "1" + end, "d": end} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
				t.Errorf("%s: %q, want %q, %v", name, got, want, err)
			}
		}
	}
}
