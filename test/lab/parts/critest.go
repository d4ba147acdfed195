// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"context"
	"fmt"
	"path/filepath"
)

// critestBuild is critest, a compiled test, and the program that runs its specs in
// several processes: critest looks for "ginkgo" in PATH when it gets -parallel.
type critestBuild struct {
	CRI     goBuild // required: crictl's recipe, of the same module
	Version string  // required: 1.34.0
	Ginkgo  string  // required: the version that the module asks for, 2.25.0
}

func (b critestBuild) recipe() string { return fmt.Sprintf("%s ginkgo %s", b.CRI.recipe(), b.Ginkgo) }

const (
	critestPackage = "sigs.k8s.io/cri-tools/cmd/critest"
	ginkgoPackage  = "github.com/onsi/ginkgo/v2/ginkgo"
)

func (b critestBuild) fetch(ctx context.Context, _ *Cache) error { return b.inModule(ctx, nil) }

func (b critestBuild) build(ctx context.Context, _ *Cache, dir string) error {
	return b.inModule(ctx, func(mod string, env []string) error {
		test := []string{
			"test", "-c", "-trimpath", noDebug, "-ldflags", "-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=v" + b.Version,
			"-o", filepath.Join(dir, "critest"), critestPackage,
		}
		runner := []string{"build", "-trimpath", "-buildvcs=false", noDebug, "-ldflags", "-s -w", "-o", filepath.Join(dir, "ginkgo"), ginkgoPackage}
		if err := runQuiet(ctx, mod, env, "go", test...); err != nil {
			return err
		}
		return runQuiet(ctx, mod, env, "go", runner...)
	})
}

func (b critestBuild) inModule(ctx context.Context, use func(mod string, env []string) error) error {
	env := []string{"CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off"}
	// -t: the package is its test alone.
	get := []string{"get", "-t", critestPackage + "@v" + b.Version, ginkgoPackage + "@v" + b.Ginkgo}
	return inModule(ctx, b.CRI.goMod(), b.CRI.Sums, env, get, use)
}
