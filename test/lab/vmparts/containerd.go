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

//go:embed containerd.go
var containerdSource string

// ContainerdTooOld provides a folder with containerd, its shim and ctr of a release with NRI that koord-nri does not support. A
// package is here in seconds, to compile that release would take minutes.
func (s Store) ContainerdTooOld(ctx context.Context) (string, error) {
	suite, err := s.suite("CONTAINERD_TOO_OLD")
	if err != nil {
		return "", err
	}
	sources := []string{aptSource, containerdSource}
	return s.ensure(ctx, "containerd-too-old", suite, sources, func(ctx context.Context, dir string) (err error) {
		work := filepath.Join(dir, "work")
		defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
		a, err := openArchive(ctx, filepath.Join(work, "apt"), suite)
		if err != nil {
			return err
		}
		if err := a.unpack(ctx, filepath.Join(work, "tree"), "containerd"); err != nil {
			return err
		}
		for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
			if err := os.Rename(filepath.Join(work, "tree", "usr", "bin", name), filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		return nil
	})
}
