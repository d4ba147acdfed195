// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHAMiLibrary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lib, lock := filepath.Join(dir, "libvgpu.so"), filepath.Join(dir, "vgpulock")
	if got := hamiLibrary(lib, lock); got != "" {
		t.Errorf("nothing is installed: got %q", got)
	}
	if err := os.WriteFile(lib, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := hamiLibrary(lib, lock); got != "" {
		t.Errorf("without the lock directory: got %q", got)
	}
	if err := os.Mkdir(lock, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := hamiLibrary(lib, lock); got != lib {
		t.Errorf("installed: got %q", got)
	}
}
