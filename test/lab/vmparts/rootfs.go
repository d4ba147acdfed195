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
)

//go:embed rootfs.go
var rootfsSource string

const (
	rootfsSize     = "4G" // sparse
	rootfsPackages = "systemd,systemd-sysv,dbus,iproute2,kmod"
	rootfsID       = "6b6f6f72642d72742d6c61622d766d31\n" // a set machine-id spares the first-boot work
)

// Rootfs provides the path of an ext4 image with a minimal Debian whose init is systemd. Building it needs root, for
// chroot and for the owners of its files.
func (s Store) Rootfs(ctx context.Context) (string, error) {
	suite, err := s.suite("VM_SUITE_ROOTFS")
	if err != nil {
		return "", err
	}
	sources := []string{aptSource, rootfsSource}
	dir, err := s.ensure(ctx, "vm-rootfs", suite, sources, func(ctx context.Context, dir string) error {
		return buildRootfs(ctx, dir, suite)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "rootfs.ext4"), nil
}

func buildRootfs(ctx context.Context, dir, suite string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("build systemd root filesystem: needs root")
	}
	work := filepath.Join(dir, "work")
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	a, err := openArchive(ctx, filepath.Join(work, "apt"), suite)
	if err != nil {
		return err
	}
	tool := filepath.Join(work, "debootstrap")
	if err := a.unpack(ctx, tool, "debootstrap"); err != nil {
		return err
	}
	mirror, err := debianMirror(ctx)
	if err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	_, err = runTool(ctx, work, "env", "DEBOOTSTRAP_DIR="+filepath.Join(tool, "usr/share/debootstrap"),
		"sh", filepath.Join(tool, "usr/sbin/debootstrap"), "--arch=amd64", "--variant=minbase",
		"--keyring="+debianKeyring, "--include="+rootfsPackages, suite, tree, mirror)
	if err != nil {
		return err
	}
	if err := finishRootfs(tree); err != nil {
		return err
	}
	_, err = runTool(ctx, dir, "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0",
		"-N", "131072", "-E", "lazy_itable_init=0", "-d", tree, filepath.Join(dir, "rootfs.ext4"), rootfsSize)
	return err
}

// finishRootfs removes what only a package manager needs and sets what would otherwise be generated at each boot.
func finishRootfs(tree string) error {
	for _, pattern := range []string{"var/cache/apt/archives/*.deb", "var/lib/apt/lists/*", "usr/share/doc/*", "usr/share/locale/*"} {
		found, err := filepath.Glob(filepath.Join(tree, pattern))
		if err != nil {
			return fmt.Errorf("clean root filesystem: %w", err)
		}
		for _, path := range found {
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("clean root filesystem: %w", err)
			}
		}
	}
	for path, text := range map[string]string{
		"etc/machine-id": rootfsID, "etc/hostname": "koord-vm\n", "etc/resolv.conf": "",
		"etc/.updated": "", "var/.updated": "", // newer than /usr: no ldconfig and the like at boot
	} {
		if err := os.WriteFile(filepath.Join(tree, path), []byte(text), 0o644); err != nil {
			return fmt.Errorf("finish root filesystem: %w", err)
		}
	}
	return nil
}
