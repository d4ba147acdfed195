// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Loader is the C library's loader in the folder of a part that was copied from this machine, beside the libraries.
const Loader = "ld.so"

// installedBuild copies programs that Debian's package has installed on this machine, with what ldd names: a guest and the lab's image
// have no C library.
type installedBuild struct {
	Package  string   // required: iproute2
	Programs []string // required: their paths
}

func (b installedBuild) recipe() string { return fmt.Sprintf("%#v with what ldd names, layout 1", b) }

func (b installedBuild) fetch(ctx context.Context, c *Cache) error {
	return c.InstallDebian(ctx, b.Package)
}

func (b installedBuild) build(ctx context.Context, c *Cache, dir string) error {
	if err := b.fetch(ctx, c); err != nil {
		return err
	}
	files := map[string]string{}
	for _, program := range b.Programs {
		out, err := exec.CommandContext(ctx, "ldd", program).Output()
		if err != nil {
			return fmt.Errorf("ask for the libraries of %s: %w", program, err)
		}
		needed, err := parseLdd(string(out))
		if err != nil {
			return fmt.Errorf("read the libraries of %s: %w", program, err)
		}
		maps.Copy(files, needed)
		files[filepath.Base(program)] = program
	}
	for name, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("copy %s: %w", from, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			return fmt.Errorf("copy %s: %w", from, err)
		}
	}
	return nil
}

// parseLdd returns where each library is by the name that it is asked for, and the loader:
//
//	linux-vdso.so.1 (0x00007f7bc96ad000)
//	libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f7bc8477000)
//	/lib64/ld-linux-x86-64.so.2 (0x00007f7bc96af000)
func parseLdd(out string) (map[string]string, error) {
	files := map[string]string{}
	for line := range strings.Lines(out) {
		name, path, isLibrary := strings.Cut(strings.TrimSpace(line), " => ")
		if !isLibrary {
			name, path = Loader, name
		}
		path, _, _ = strings.Cut(path, " (")
		switch {
		case filepath.IsAbs(path):
			files[name] = path
		case isLibrary:
			return nil, fmt.Errorf("%s: %s", name, path)
		}
	}
	if files[Loader] == "" {
		return nil, fmt.Errorf("no loader in %q", out)
	}
	return files, nil
}
