// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The builders' own source is part of each recipe: a changed builder never finds an old part.
var (
	//go:embed apt.go
	aptSource string
	//go:embed kernel.go
	kernelSource string
	//go:embed vmlinux.go
	vmlinuxSource string
	//go:embed modules.go
	modulesSource string
)

// Kernel is a bootable kernel with cache allocation (resctrl) working under emulation.
type Kernel struct {
	Series  string // as asked for: "6.1", "6.12", "7.2"
	Release string // uname -r, of the series or later where the suite has moved on
	Vmlinux string // path of the ELF image
	Modules string // folder of .ko files whose names sort in load order
	Config  string // path of the kernel's build configuration
}

// Kernel provides the Debian cloud kernel of a series. The suite is VM_SUITE_KERNEL_<series> of versions.env, dots as
// underscores; the version is what the suite's meta-package names when the part is built. "6.12-own" is compiled here (ownkernel.go).
func (s Store) Kernel(ctx context.Context, series string) (Kernel, error) {
	number, own := strings.CutSuffix(series, ownSuffix)
	suite, err := s.suite("VM_SUITE_KERNEL_" + strings.ReplaceAll(number, ".", "_"))
	if err != nil {
		return Kernel{}, fmt.Errorf("kernel series %q: %w", series, err)
	}
	sources := []string{aptSource, kernelSource, vmlinuxSource, modulesSource}
	build := func(ctx context.Context, dir string) error { return buildKernel(ctx, dir, suite, series) }
	if own {
		debian, err := s.Kernel(ctx, number)
		if err != nil {
			return Kernel{}, err
		}
		sources = append(sources, ownKernelSource)
		build = func(ctx context.Context, dir string) error { return s.buildOwnKernel(ctx, dir, suite, number, debian) }
	}
	dir, err := s.ensure(ctx, "vm-kernel-"+series, suite, sources, build)
	if err != nil {
		return Kernel{}, err
	}
	release, err := os.ReadFile(filepath.Join(dir, "release"))
	if err != nil {
		return Kernel{}, fmt.Errorf("read kernel release: %w", err)
	}
	return Kernel{
		Series: series, Release: strings.TrimSpace(string(release)), Vmlinux: filepath.Join(dir, "vmlinux"),
		Modules: filepath.Join(dir, "modules"), Config: filepath.Join(dir, "config"),
	}, nil
}

func buildKernel(ctx context.Context, dir, suite, series string) (err error) {
	work := filepath.Join(dir, "work")
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	a, err := openArchive(ctx, filepath.Join(work, "apt"), suite)
	if err != nil {
		return err
	}
	image, err := a.dependency(ctx, "linux-image-cloud-amd64", "linux-image-")
	if err != nil {
		return err
	}
	release := strings.TrimPrefix(image, "linux-image-")
	if !atLeast(release, series) {
		return fmt.Errorf("suite %s carries kernel %s, older than %s", suite, release, series)
	}
	packages, err := kernelPackages(ctx, a, release)
	if err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	if err := a.unpack(ctx, tree, packages...); err != nil {
		return err
	}
	if err := writeVmlinux(tree, release, dir); err != nil {
		return err
	}
	modules := filepath.Join(dir, "modules")
	if err := os.Mkdir(modules, 0o755); err != nil {
		return fmt.Errorf("create modules folder: %w", err)
	}
	found, err := firstGlob(tree, "usr/lib/modules/"+release+"/kernel", "lib/modules/"+release+"/kernel")
	if err != nil {
		return err
	}
	if err := collectModules(ctx, filepath.Dir(found), modules); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "release"), []byte(release+"\n"), 0o644)
}

// kernelPackages names the unsigned packages of a release: one image package, or since 7.x three.
func kernelPackages(ctx context.Context, a archive, release string) ([]string, error) {
	single := "linux-image-" + release + "-unsigned"
	ok, err := a.has(ctx, single)
	if err != nil {
		return nil, err
	}
	binary := "linux-binary-unsigned-" + release
	split, err := a.has(ctx, binary)
	if err != nil {
		return nil, err
	}
	switch {
	case split:
		return []string{binary, "linux-modules-" + release, "linux-base-" + release}, nil
	case ok:
		return []string{single}, nil
	default:
		return nil, fmt.Errorf("find kernel %s: neither %s nor %s is in the archive", release, single, binary)
	}
}

func writeVmlinux(tree, release, dir string) error {
	path, err := firstGlob(tree, "boot/vmlinuz-"+release, "usr/lib/modules/"+release+"/vmlinuz*")
	if err != nil {
		return err
	}
	image, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read kernel image: %w", err)
	}
	vmlinux, err := extractVmlinux(image)
	if err != nil {
		return err
	}
	vmlinux, err = enableResctrl(vmlinux)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "vmlinux"), vmlinux, 0o644); err != nil {
		return fmt.Errorf("write vmlinux: %w", err)
	}
	config, err := firstGlob(tree, "boot/config-"+release, "usr/lib/modules/"+release+"/config")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(config)
	if err != nil {
		return fmt.Errorf("read kernel config: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "config"), data, 0o644)
}

func firstGlob(root string, patterns ...string) (string, error) {
	for _, p := range patterns {
		found, err := filepath.Glob(filepath.Join(root, p))
		if err != nil {
			return "", fmt.Errorf("search %s: %w", p, err)
		}
		if len(found) > 0 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("search unpacked packages: none of %s", strings.Join(patterns, ", "))
}

// atLeast compares the major and minor number of a kernel release with a series.
func atLeast(release, series string) bool {
	a, okA := majorMinor(release)
	b, okB := majorMinor(series)
	return okA && okB && (a[0] > b[0] || a[0] == b[0] && a[1] >= b[1])
}

func majorMinor(s string) (v [2]int, ok bool) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 2 {
		return v, false
	}
	for i := range v {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}
