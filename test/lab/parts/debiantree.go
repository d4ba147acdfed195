// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// debianTree is a folder of one Debian package, unpacked into the cache: nothing is
// installed on the machine.
type debianTree struct {
	Package string // required: containernetworking-plugins
	Keep    string // required: folder inside the package whose files become the part
}

func (d debianTree) recipe() string { return fmt.Sprintf("%#v", d) }

func (d debianTree) fetch(context.Context, *Cache) error { return nil } // its build is the download

func (d debianTree) build(ctx context.Context, c *Cache, dir string) error {
	tree, err := os.MkdirTemp("", "koord-rt-deb-")
	if err != nil {
		return fmt.Errorf("create unpack folder: %w", err)
	}
	defer os.RemoveAll(tree)
	if err := c.unpackDebian(ctx, tree, d.Package); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(tree, d.Keep))
	if err != nil {
		return fmt.Errorf("read %s: %w", d.Package, err)
	}
	for _, e := range entries {
		if err := runQuiet(ctx, "", nil, "cp", "-a", filepath.Join(tree, d.Keep, e.Name()), dir+"/"); err != nil {
			return err
		}
	}
	return nil
}

// unpackDebian downloads packages of this machine's release and unpacks them below
// tree, without their dependencies.
func (c *Cache) unpackDebian(ctx context.Context, tree string, packages ...string) error {
	unlock, err := c.Lock(ctx, "apt")
	if err != nil {
		return err
	}
	defer unlock()
	debs, err := os.MkdirTemp("", "koord-rt-deb-")
	if err != nil {
		return fmt.Errorf("create download folder: %w", err)
	}
	defer os.RemoveAll(debs)
	// apt downloads as its own user, which must be able to enter the folder.
	if err := os.Chmod(debs, 0o777); err != nil {
		return fmt.Errorf("create download folder: %w", err)
	}
	download := append([]string{"download", "-qq"}, packages...)
	if err := runQuiet(ctx, debs, nil, "apt-get", download...); err != nil {
		// The lists may be missing or old: archives move on.
		if err := runQuiet(ctx, "", nil, "apt-get", "-o", "DPkg::Lock::Timeout=120", "update", "-qq"); err != nil {
			return err
		}
		if err := runQuiet(ctx, debs, nil, "apt-get", download...); err != nil {
			return err
		}
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil || len(files) != len(packages) {
		return fmt.Errorf("download %v: have %v, %v", packages, files, err)
	}
	for _, f := range files {
		if err := runQuiet(ctx, "", nil, "dpkg-deb", "-x", f, tree); err != nil {
			return err
		}
	}
	return nil
}
