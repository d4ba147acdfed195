// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	stressProgram = "stress-ng"
	stressLoader  = "ld.so"
)

// StressCommand is how stress-ng is started where its part lies in dir: by the loader beside it, since a guest and the lab's image have
// no C library. It says nothing, ends by itself should nobody end it, and leaves alone who is to be killed when memory runs out.
func StressCommand(dir string, args ...string) []string {
	return append([]string{
		filepath.Join(dir, stressLoader), "--library-path", dir, filepath.Join(dir, stressProgram),
		"--quiet", "--timeout", "1h", "--no-oom-adjust",
	}, args...)
}

// stressBuild copies what Debian's package has installed on this machine.
type stressBuild struct{}

func (stressBuild) recipe() string { return "Debian's stress-ng with what ldd names, layout 1" }

func (stressBuild) fetch(ctx context.Context, c *Cache) error {
	return c.InstallDebian(ctx, "stress-ng")
}

func (b stressBuild) build(ctx context.Context, c *Cache, dir string) error {
	if err := b.fetch(ctx, c); err != nil {
		return err
	}
	const program = "/usr/bin/" + stressProgram
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return fmt.Errorf("ask for the libraries of %s: %w", program, err)
	}
	files, err := parseLdd(string(out))
	if err != nil {
		return fmt.Errorf("read the libraries of %s: %w", program, err)
	}
	files[stressProgram] = program
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
			name, path = stressLoader, name
		}
		path, _, _ = strings.Cut(path, " (")
		switch {
		case filepath.IsAbs(path):
			files[name] = path
		case isLibrary:
			return nil, fmt.Errorf("%s: %s", name, path)
		}
	}
	if files[stressLoader] == "" {
		return nil, fmt.Errorf("no loader in %q", out)
	}
	return files, nil
}
