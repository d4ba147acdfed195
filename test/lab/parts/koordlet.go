// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/koord-rt/koord-rt/test/lab"
)

// koordletBuild is upstream's node agent, built by its own go.mod: a peer for tests
// and benchmarks, never a dependency. It reads hardware counters through libpfm4 (cgo), which
// comes beside it in lib/: $ORIGIN/lib is its run path, so nothing is installed. Its tags leave cgo to that alone, so that all else is
// compiled as for upstream's other programs, once.
type koordletBuild struct {
	Version string // required: 1.8.0
}

func (k koordletBuild) recipe() string {
	return fmt.Sprintf("%#v -s -w -tags netgo,osusergo rpath $ORIGIN/lib crds/ %s", k, runtime.Version())
}

func (k koordletBuild) fetch(ctx context.Context, c *Cache) error {
	return ownModuleBuild{Module: koordinatorModule, Version: k.Version, Package: "./cmd/koordlet"}.fetch(ctx, c)
}

func (k koordletBuild) build(ctx context.Context, c *Cache, dir string) error {
	if err := c.InstallDebian(ctx, "gcc", "libc6-dev"); err != nil {
		return err
	}
	root, _, err := downloadModule(ctx, koordinatorModule, "v"+k.Version)
	if err != nil {
		return err
	}
	pfm, err := os.MkdirTemp("", "koord-rt-pfm-")
	if err != nil {
		return fmt.Errorf("create unpack folder: %w", err)
	}
	defer os.RemoveAll(pfm)
	if err := c.unpackDebian(ctx, pfm, "libpfm4", "libpfm4-dev"); err != nil {
		return err
	}
	lib := filepath.Join(pfm, "usr/lib/x86_64-linux-gnu")
	env := []string{
		"CGO_ENABLED=1", "GOWORK=off", "GOFLAGS=-mod=readonly",
		"CGO_CFLAGS=-O2 -I" + filepath.Join(pfm, "usr/include"),
		"CGO_LDFLAGS=-L" + lib,
		"CGO_LDFLAGS_ALLOW=-Wl,.*",
	}
	if err := runQuiet(ctx, root, env, "go", "build", "-trimpath", "-buildvcs=false", noDebug, "-tags", "netgo,osusergo",
		"-ldflags", "-s -w -extldflags=-Wl,-rpath,$ORIGIN/lib", "-o", filepath.Join(dir, "koordlet"), "./cmd/koordlet"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "lib"), 0o755); err != nil {
		return fmt.Errorf("create library folder: %w", err)
	}
	sos, err := filepath.Glob(filepath.Join(lib, "libpfm.so*"))
	if err != nil || len(sos) == 0 {
		return fmt.Errorf("find libpfm: %v, %v", sos, err)
	}
	for _, so := range sos {
		if err := runQuiet(ctx, "", nil, "cp", "-a", so, filepath.Join(dir, "lib")+"/"); err != nil {
			return err
		}
	}
	// Its own resource definitions, applied by tests at run time.
	return runQuiet(ctx, "", nil, "cp", "-r", filepath.Join(root, "config/crd/bases"), filepath.Join(dir, "crds"))
}

// UpstreamSource is upstream's source as published, in Go's module cache: read-only, and checked by Go's checksum database.
func UpstreamSource(ctx context.Context) (string, error) {
	v, err := lab.Versions()
	if err != nil {
		return "", err
	}
	root, _, err := downloadModule(ctx, koordinatorModule, "v"+v["UPSTREAM_KOORDINATOR"])
	return root, err
}
