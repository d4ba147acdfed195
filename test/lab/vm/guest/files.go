// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

// placeFiles mounts the disk below root and puts the caller's files where they belong.
func placeFiles(root string, files []guestcfg.File) error {
	dev, err := findDisk(guestcfg.DiskSerial)
	if err != nil {
		return err
	}
	disk := filepath.Join(root, guestcfg.DiskDir)
	if err := mountAll([]mount{{dev, disk, "ext4", 0, ""}}); err != nil {
		return err
	}
	for _, f := range files {
		if err := placeFile(filepath.Join(disk, f.Source), filepath.Join(root, f.Target)); err != nil {
			return fmt.Errorf("place %s: %w", f.Target, err)
		}
	}
	return nil
}

func placeFile(from, to string) error {
	if err := ownByRoot(from); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		err = os.MkdirAll(to, 0o755)
	case info.Size() < guestcfg.CopyLimit:
		return copyFile(from, to)
	default:
		err = os.WriteFile(to, nil, 0o644) // a bind mount needs something to cover
	}
	if err != nil {
		return err
	}
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

// ownByRoot drops the ownership that the files had on the host.
func ownByRoot(path string) error {
	return filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, 0, 0)
	})
}

// copyFile copies content and permission bits.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("open file: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("read file mode: %w", err)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return fmt.Errorf("create file: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return out.Chmod(info.Mode().Perm())
}
