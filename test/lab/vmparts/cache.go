// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package vmparts builds and caches what the virtual machine lane of the lab boots: the emulator, kernels with their
// modules, a static busybox and a systemd root filesystem; and what else the lab takes from a Debian suite that is not the host's.
//
// Inputs are the Debian suites named in test/lab/versions.env and the package mirror of the host's own apt
// configuration (or KOORD_RT_DEBIAN_MIRROR). Outputs are folders of the lab's cache, one per part, written once and
// never changed after that. The host's apt and dpkg state is not touched. It must not import any package under test.
package vmparts

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Store builds parts into a cache. The zero value is not usable; see Open.
type Store struct {
	cache    *parts.Cache
	versions map[string]string
}

// Open returns the store of a cache with the versions of test/lab/versions.env.
func Open(cache *parts.Cache) (Store, error) {
	versions, err := lab.Versions()
	if err != nil {
		return Store{}, err
	}
	return Store{cache: cache, versions: versions}, nil
}

// suite returns the Debian suite under a key of versions.env. A missing key is an error that names it.
func (s Store) suite(key string) (string, error) {
	v := s.versions[key]
	if v == "" {
		return "", fmt.Errorf("choose Debian suite: test/lab/versions.env has no %s", key)
	}
	return v, nil
}

// ensure builds a part once per suite and builder source.
func (s Store) ensure(
	ctx context.Context, name, suite string, sources []string, build func(ctx context.Context, dir string) error,
) (string, error) {
	spec := parts.Spec{Name: name, Version: suite, Recipe: strings.Join(append(sources, suite), "\x00")}
	return s.cache.Ensure(ctx, spec, build)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
