// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"path/filepath"
)

//go:embed busybox.go
var busyboxSource string

// Busybox provides the path of a static busybox, the only userland of a bare guest.
func (s Store) Busybox(ctx context.Context) (string, error) {
	suite, err := s.suite("VM_SUITE_BUSYBOX")
	if err != nil {
		return "", err
	}
	sources := []string{aptSource, busyboxSource}
	dir, err := s.ensure(ctx, "vm-busybox", suite, sources, func(ctx context.Context, dir string) (err error) {
		work := filepath.Join(dir, "work")
		defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
		a, err := openArchive(ctx, filepath.Join(work, "apt"), suite)
		if err != nil {
			return err
		}
		if err := a.unpack(ctx, filepath.Join(work, "tree"), "busybox-static"); err != nil {
			return err
		}
		found, err := firstGlob(filepath.Join(work, "tree"), "usr/bin/busybox", "bin/busybox")
		if err != nil {
			return err
		}
		return os.Rename(found, filepath.Join(dir, "busybox"))
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "busybox"), nil
}
