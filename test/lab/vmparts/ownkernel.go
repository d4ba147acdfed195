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
	"runtime"
	"strings"
)

//go:embed ownkernel.go
var ownKernelSource string

// ownSuffix marks a series that is compiled here from Debian's source, with Debian's configuration, for what Debian's kernels leave
// out. It takes a quarter of an hour of two processors, so make test does without.
const ownSuffix = "-own"

// What an own kernel has that Debian's has not. Nothing is loaded into it: what the guests' modules are (guestModules) is built in, and
// other modules are not built.
var (
	ownOptions = []string{"SCHED_CORE", "BLK_CGROUP_IOLATENCY"}
	ownBuiltIn = []string{
		"VIRTIO_PCI", "VIRTIO_BLK", "OVERLAY_FS", "VETH", "BRIDGE", "BLK_DEV_LOOP", "IOSCHED_BFQ", "NET_SCH_HTB", "NET_SCH_TBF", "NET_SCH_INGRESS",
		"NET_CLS_U32", "NET_ACT_MIRRED", "IFB", "INET_DIAG", "INET_TCP_DIAG",
	}
	// ownUnset is what only debuggers and signatures need: half of the time, and Debian's certificates.
	ownUnset = []string{
		"DEBUG_INFO", "DEBUG_INFO_BTF", "DEBUG_INFO_BTF_MODULES", "DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT", "MODULE_SIG", "SYSTEM_TRUSTED_KEYS", "SYSTEM_REVOCATION_KEYS",
	}
)

// ownTools are the Debian packages by which a kernel is compiled.
var ownTools = []string{"bc", "bison", "flex", "gcc", "libc6-dev", "libelf-dev", "libssl-dev", "make", "perl", "xz-utils"}

// buildOwnKernel compiles the kernel of a series; debian is Debian's of the same.
func (s Store) buildOwnKernel(ctx context.Context, dir, suite, series string, debian Kernel) (err error) {
	if err := s.cache.InstallDebian(ctx, ownTools...); err != nil {
		return err
	}
	work := filepath.Join(dir, "work")
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	a, err := openArchive(ctx, filepath.Join(work, "apt"), suite)
	if err != nil {
		return err
	}
	name := "linux-source-" + series
	if err := a.unpack(ctx, work, name); err != nil {
		return err
	}
	if _, err := runTool(ctx, work, "tar", "xf", filepath.Join(work, "usr/src", name+".tar.xz")); err != nil {
		return err
	}
	tree := filepath.Join(work, name)
	config, err := os.ReadFile(debian.Config)
	if err != nil {
		return fmt.Errorf("read Debian's kernel configuration: %w", err)
	}
	if err := os.WriteFile(filepath.Join(tree, ".config"), []byte(ownConfig(string(config))), 0o644); err != nil {
		return fmt.Errorf("write kernel configuration: %w", err)
	}
	for _, goals := range [][]string{{"olddefconfig"}, {fmt.Sprintf("-j%d", runtime.NumCPU()), "vmlinux"}} {
		if _, err := runTool(ctx, tree, "make", append([]string{"-s"}, goals...)...); err != nil {
			return err
		}
	}
	return keepOwn(ctx, tree, dir)
}

// ownConfig is Debian's configuration as an own kernel wants it. What depends on what is left out goes by make olddefconfig.
func ownConfig(debian string) string {
	want := map[string]string{}
	for _, list := range [][]string{ownOptions, ownBuiltIn, {"DEBUG_INFO_NONE"}} {
		for _, option := range list {
			want["CONFIG_"+option] = "y"
		}
	}
	for _, option := range ownUnset {
		want["CONFIG_"+option] = ""
	}
	var b strings.Builder
	for line := range strings.Lines(debian) {
		option, value, set := strings.Cut(strings.TrimSpace(line), "=")
		if !set {
			option = strings.TrimSuffix(strings.TrimPrefix(option, "# "), " is not set")
		}
		if _, ours := want[option]; ours || value == "m" {
			continue
		}
		b.WriteString(line)
	}
	for option, value := range want {
		if value != "" {
			fmt.Fprintf(&b, "%s=%s\n", option, value)
		}
	}
	return b.String()
}

// keepOwn keeps of a compiled tree what Kernel tells of.
func keepOwn(ctx context.Context, tree, dir string) error {
	config, err := os.ReadFile(filepath.Join(tree, ".config"))
	if err != nil {
		return fmt.Errorf("read kernel configuration: %w", err)
	}
	for _, option := range append(append([]string{}, ownOptions...), ownBuiltIn...) {
		if !strings.Contains(string(config), "\nCONFIG_"+option+"=y\n") {
			return fmt.Errorf("configure kernel: make olddefconfig has dropped %s", option)
		}
	}
	if _, err := runTool(ctx, tree, "strip", "--strip-all", "vmlinux"); err != nil {
		return err
	}
	vmlinux, err := os.ReadFile(filepath.Join(tree, "vmlinux"))
	if err != nil {
		return fmt.Errorf("read kernel: %w", err)
	}
	if vmlinux, err = enableResctrl(vmlinux); err != nil {
		return err
	}
	release, err := os.ReadFile(filepath.Join(tree, "include/config/kernel.release"))
	if err != nil {
		return fmt.Errorf("read kernel release: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "vmlinux"), vmlinux, 0o644),
		os.WriteFile(filepath.Join(dir, "config"), config, 0o644),
		os.WriteFile(filepath.Join(dir, "release"), release, 0o644),
		os.Mkdir(filepath.Join(dir, "modules"), 0o755),
	)
}
