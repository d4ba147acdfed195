// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Names of the runtime's side of NRI in each of its versions: the program nriruntime.
const (
	NRIRuntime08  = "nri-runtime-0.8"
	NRIRuntime09  = "nri-runtime-0.9"
	NRIRuntime010 = "nri-runtime-0.10"
	NRIRuntime011 = "nri-runtime-0.11"
	NRIRuntime012 = "nri-runtime-0.12"
)

// NRIRuntimeNames lists them, oldest first.
func NRIRuntimeNames() []string {
	return []string{NRIRuntime08, NRIRuntime09, NRIRuntime010, NRIRuntime011, NRIRuntime012}
}

// The program is no package of this module, whose go.mod has one version of NRI: test/e2e's TestCompatNRI builds and uses it.
//
//go:embed testdata/nriruntime/main.go
var nriRuntimeSource string

// nriRuntimePart is the recipe table of these parts.
func nriRuntimePart(name string, v map[string]string) (b builder, version string, ok bool) {
	key := map[string]string{
		NRIRuntime08: "NRI_0_8", NRIRuntime09: "NRI_0_9", NRIRuntime010: "NRI_0_10", NRIRuntime011: "NRI_0_11", NRIRuntime012: "NRI_0_12",
	}[name]
	return nriRuntimeBuild{Version: v[key]}, v[key], key != ""
}

// nriRuntimeBuild compiles the program in a module that requires one version of NRI.
type nriRuntimeBuild struct {
	Version string // required, without v
}

func (n nriRuntimeBuild) recipe() string {
	return fmt.Sprintf("%#v CGO_ENABLED=0 %s %s", n, runtime.Version(), nriRuntimeSource)
}

func (n nriRuntimeBuild) fetch(ctx context.Context, _ *Cache) error { return n.inModule(ctx, nil) }

func (n nriRuntimeBuild) build(ctx context.Context, _ *Cache, dir string) error {
	return n.inModule(ctx, func(mod string, env []string) error {
		if err := os.WriteFile(filepath.Join(mod, "main.go"), []byte(nriRuntimeSource), 0o644); err != nil {
			return fmt.Errorf("write the program: %w", err)
		}
		return runQuiet(ctx, mod, env, "go", "build", "-trimpath", "-buildvcs=false", noDebug, "-tags", "nri_no_wasm", "-ldflags=-s -w",
			"-o", filepath.Join(dir, "nriruntime"), ".")
	})
}

func (n nriRuntimeBuild) inModule(ctx context.Context, use func(mod string, env []string) error) error {
	env := []string{"CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off"}
	return inModule(ctx, goBuild{}.goMod(), nil, env, []string{"get", "github.com/containerd/nri/pkg/adaptation@v" + n.Version}, use)
}
