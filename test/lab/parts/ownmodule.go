// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
)

// ownModuleBuild is a Go program built by its module's own go.mod and go.sum, replace
// lines included: exactly what its makers ship, not stripped.
type ownModuleBuild struct {
	Module  string // required
	Version string // required, without v
	Package string // required: ./cmd/name
	File    string // required: name of the program
	LDFlags string // optional
}

func (o ownModuleBuild) recipe() string {
	return fmt.Sprintf("%#v CGO_ENABLED=0 -trimpath %s", o, runtime.Version())
}

// ownModuleEnv is how a program is built as its makers wrote its go.mod.
func ownModuleEnv() []string { return []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly"} }

func (o ownModuleBuild) fetch(ctx context.Context, _ *Cache) error {
	root, _, err := downloadModule(ctx, o.Module, "v"+o.Version)
	if err != nil {
		return err
	}
	return runQuiet(ctx, root, ownModuleEnv(), "go", "list", "-deps", o.Package) // loading them downloads their modules
}

func (o ownModuleBuild) build(ctx context.Context, _ *Cache, dir string) error {
	root, _, err := downloadModule(ctx, o.Module, "v"+o.Version)
	if err != nil {
		return err
	}
	return runQuiet(ctx, root, ownModuleEnv(), "go", "build", "-trimpath", "-buildvcs=false", noDebug,
		"-ldflags", o.LDFlags, "-o", filepath.Join(dir, o.File), o.Package)
}
