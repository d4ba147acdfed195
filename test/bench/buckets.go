// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

const (
	containerdModule = "github.com/containerd/containerd/v2"
	// containerd's histogram of plugin calls begins at 5 ms, which is longer than most calls take: its quantiles would be
	// inventions. The lines below give the same histogram buckets in steps of about 15 % from 50 µs on.
	coarse = `ns.NewLabeledTimer("plugin_latency", "NRI plugin operation latency", "plugin", "operation")`
	fine   = `ns.NewLabeledTimerWithBuckets("plugin_latency", "NRI plugin operation latency", fineBuckets(), "plugin", "operation")`
	steps  = "\nfunc fineBuckets() []float64 {\n\tvar out []float64\n\tfor b := 50e-6; b < 3; b *= 1.15 {\n\t\tout = append(out, b)\n\t}\n\treturn out\n}\n"
	// tags as the lab's own containerd is built with.
	containerdTags = "no_btrfs no_devmapper no_zfs no_aufs"
)

// fineContainerd returns the folder of a containerd that differs from the lab's in the buckets of that one histogram.
func fineContainerd(ctx context.Context) (string, error) {
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		return "", err
	}
	plain, err := cache.Get(ctx, parts.Containerd24)
	if err != nil {
		return "", err
	}
	versions, err := lab.Versions()
	if err != nil {
		return "", err
	}
	version := versions["CONTAINERD_2_4"]
	spec := parts.Spec{Name: "bench-containerd", Version: version, Recipe: plain + fine + steps + containerdTags}
	return cache.Ensure(ctx, spec, func(ctx context.Context, dir string) error {
		for _, name := range []string{"containerd-shim-runc-v2", "ctr"} {
			if err := os.Symlink(filepath.Join(plain, name), filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("link %s: %w", name, err)
			}
		}
		return buildFine(ctx, "v"+version, filepath.Join(dir, "containerd"))
	})
}

// buildFine compiles a copy of containerd with one file changed, in a module of its own.
func buildFine(ctx context.Context, version, out string) error {
	mod, err := os.MkdirTemp("", "koord-bench-containerd")
	if err != nil {
		return fmt.Errorf("create module folder: %w", err)
	}
	defer os.RemoveAll(mod)
	if err := os.WriteFile(filepath.Join(mod, "go.mod"), []byte("module koord-rt.test/bench\n\ngo 1.26\n"), 0o644); err != nil {
		return fmt.Errorf("write go.mod: %w", err)
	}
	if _, err := goTool(ctx, mod, "get", containerdModule+"/cmd/containerd@"+version); err != nil {
		return err
	}
	source, err := goTool(ctx, mod, "list", "-m", "-f", "{{.Dir}}", containerdModule)
	if err != nil {
		return err
	}
	if err := copyFine(filepath.Join(mod, "containerd"), strings.TrimSpace(source)); err != nil {
		return err
	}
	if _, err := goTool(ctx, mod, "mod", "edit", "-replace", containerdModule+"=./containerd"); err != nil {
		return err
	}
	_, err = goTool(ctx, mod, "build", "-trimpath", "-buildvcs=false", "-tags", containerdTags,
		"-ldflags", "-s -w -X "+containerdModule+"/version.Version="+version, "-o", out, containerdModule+"/cmd/containerd")
	return err
}

// copyFine copies containerd's module and changes the one file.
func copyFine(to, source string) error {
	if err := os.CopyFS(to, os.DirFS(source)); err != nil {
		return fmt.Errorf("copy containerd's source: %w", err)
	}
	path := filepath.Join(to, "internal", "nri", "metrics.go")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read containerd's metrics: %w", err)
	}
	if bytes.Count(text, []byte(coarse)) != 1 {
		return fmt.Errorf("change %s: the histogram is not where it was", path)
	}
	text = append(bytes.Replace(text, []byte(coarse), []byte(fine), 1), steps...)
	if err := errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, text, 0o644)); err != nil {
		return fmt.Errorf("write containerd's metrics: %w", err)
	}
	return nil
}

// goTool runs the go command in a module folder, as the lab builds its parts.
func goTool(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		return "", fmt.Errorf("run go %s: %w: %s", args[0], err, ee.Stderr)
	}
	return "", fmt.Errorf("run go %s: %w", args[0], err)
}
