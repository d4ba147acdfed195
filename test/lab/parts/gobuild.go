// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// noDebug makes compilers leave out what only debuggers read, which costs a fourteenth of their time and no program executes. The
// Makefile has it, too: the build cache tells both kinds of compile apart.
const noDebug = "-gcflags=all=-dwarf=false"

// goBuild is the recipe of a part that is one or more Go programs of one version,
// built in a module of their own: the parts' dependencies never meet each other or ours.
type goBuild struct {
	Packages []string          // required: import paths of main packages
	Version  string            // required: module version with v
	Tags     string            // optional: build tags, space separated
	LDFlags  string            // optional: appended to -s -w
	CGO      bool              // build with cgo (static linking is up to LDFlags)
	Require  map[string]string // optional: modules at versions that win over what the part asks for
	Exclude  map[string]string // optional: versions never to be used
	Sums     []string          // optional: go.sum lines of modules the checksum database does not know
	Debian   []string          // optional: packages that the build needs
}

func (g goBuild) recipe() string {
	return fmt.Sprintf("%#v %s", g, runtime.Version())
}

func (g goBuild) fetch(ctx context.Context, c *Cache) error { return g.inModule(ctx, c, nil) }

func (g goBuild) build(ctx context.Context, c *Cache, dir string) error {
	return g.inModule(ctx, c, func(mod string, env []string) error {
		build := []string{
			"build", "-trimpath", "-buildvcs=false", noDebug, "-tags", g.Tags,
			"-ldflags", strings.TrimSpace("-s -w " + g.LDFlags), "-o", dir + "/",
		}
		return runQuiet(ctx, mod, env, "go", append(build, g.Packages...)...)
	})
}

// inModule runs use in a module that requires the part, with everything it imports downloaded.
func (g goBuild) inModule(ctx context.Context, c *Cache, use func(mod string, env []string) error) error {
	if err := c.InstallDebian(ctx, g.Debian...); err != nil {
		return err
	}
	cgo := "CGO_ENABLED=0"
	if g.CGO {
		cgo = "CGO_ENABLED=1"
	}
	env := []string{cgo, "GOFLAGS=-mod=mod", "GOWORK=off"}
	get := []string{"get"}
	for _, p := range g.Packages {
		get = append(get, p+"@"+g.Version)
	}
	return inModule(ctx, g.goMod(), g.Sums, env, get, use)
}

// inModule makes a module of that go.mod and those lines of go.sum, lets "go get" complete and download it, and runs use,
// if any, in its folder.
func inModule(ctx context.Context, goMod string, sums, env, get []string, use func(mod string, env []string) error) error {
	mod, err := os.MkdirTemp("", "koord-rt-part-")
	if err != nil {
		return fmt.Errorf("create module folder: %w", err)
	}
	defer os.RemoveAll(mod)
	if err := os.WriteFile(filepath.Join(mod, "go.mod"), []byte(goMod), 0o644); err != nil {
		return fmt.Errorf("write go.mod: %w", err)
	}
	if len(sums) > 0 {
		if err := os.WriteFile(filepath.Join(mod, "go.sum"), []byte(strings.Join(sums, "\n")+"\n"), 0o644); err != nil {
			return fmt.Errorf("write go.sum: %w", err)
		}
	}
	if err := runQuiet(ctx, mod, env, "go", get...); err != nil || use == nil {
		return err
	}
	return use(mod, env)
}

func (g goBuild) goMod() string {
	var b strings.Builder
	b.WriteString("module koord-rt.test/part\n\ngo 1.26\n")
	for _, m := range sortedKeys(g.Exclude) {
		fmt.Fprintf(&b, "exclude %s %s\n", m, g.Exclude[m])
	}
	for _, m := range sortedKeys(g.Require) {
		fmt.Fprintf(&b, "require %s %s\n", m, g.Require[m])
	}
	return b.String()
}
