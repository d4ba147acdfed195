// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// critestBuild is critest, a compiled test, and the program that runs its specs in
// several processes: critest looks for "ginkgo" in PATH when it gets -parallel.
type critestBuild struct {
	CRI     goBuild // required: crictl's recipe, of the same module
	Version string  // required: 1.34.0
	Ginkgo  string  // required: the version that the module asks for, 2.25.0
}

func (b critestBuild) recipe() string { return fmt.Sprintf("%s ginkgo %s", b.CRI.recipe(), b.Ginkgo) }

func (b critestBuild) build(ctx context.Context, _ *Cache, dir string) error {
	const critest, ginkgo = "sigs.k8s.io/cri-tools/cmd/critest", "github.com/onsi/ginkgo/v2/ginkgo"
	mod, err := os.MkdirTemp("", "koord-rt-part-")
	if err != nil {
		return fmt.Errorf("create module folder: %w", err)
	}
	defer os.RemoveAll(mod)
	for name, text := range map[string]string{
		"go.mod": b.CRI.goMod(), "go.sum": strings.Join(b.CRI.Sums, "\n") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(mod, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	env := []string{"CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off"}
	for _, args := range [][]string{
		// -t: the package is its test alone.
		{"get", "-t", critest + "@v" + b.Version, ginkgo + "@v" + b.Ginkgo},
		{
			"test", "-c", "-trimpath", "-ldflags", "-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=v" + b.Version,
			"-o", filepath.Join(dir, "critest"), critest,
		},
		{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(dir, "ginkgo"), ginkgo},
	} {
		if err := runQuiet(ctx, mod, env, "go", args...); err != nil {
			return err
		}
	}
	return nil
}
