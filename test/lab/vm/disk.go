// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

// diskInodes is fixed, so that the inode table is small enough to be written at once: the kernel's lazy initialisation
// would disturb what a test measures on the disk.
const diskInodes = "65536"

// makeDisk makes the ext4 image with the caller's files and free space, and says where on it each file lies.
func makeDisk(ctx context.Context, work string, o Options) ([]guestcfg.File, error) {
	stage := filepath.Join(work, "stage")
	if err := os.MkdirAll(filepath.Join(stage, "files"), 0o755); err != nil {
		return nil, fmt.Errorf("create disk stage: %w", err)
	}
	var files []guestcfg.File
	var bytesUsed int64
	// Sorted by target, so that a folder is in place before a file that goes inside it.
	hosts := slices.SortedFunc(maps.Keys(o.Files), func(a, b string) int {
		return bytes.Compare([]byte(o.Files[a]), []byte(o.Files[b]))
	})
	for i, host := range hosts {
		source := filepath.Join("files", strconv.Itoa(i))
		n, err := stageTree(host, filepath.Join(stage, source))
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", host, err)
		}
		bytesUsed += n
		files = append(files, guestcfg.File{Source: source, Target: filepath.Clean(o.Files[host])})
	}
	tool, err := findTool("mke2fs")
	if err != nil {
		return nil, err
	}
	image := filepath.Join(work, diskFile)
	mib := o.DiskMiB + int(bytesUsed>>20)*11/10 + 64 // a tenth and 64 MiB for the filesystem itself
	cmd := exec.CommandContext(ctx, tool, "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0",
		"-N", diskInodes, "-E", "root_owner=0:0,lazy_itable_init=0", "-d", stage, image, strconv.Itoa(mib)+"M")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make disk: %w: %s", err, bytes.TrimSpace(out))
	}
	return files, os.RemoveAll(stage)
}

// stageTree links or copies a file or folder and returns its size in bytes. Symbolic links inside a folder are kept;
// a link given as the file itself is followed.
func stageTree(from, to string) (int64, error) {
	real, err := filepath.EvalSymlinks(from)
	if err != nil {
		return 0, err
	}
	var size int64
	err = filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(real, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case d.Type().IsRegular():
			info, err := d.Info()
			if err != nil {
				return err
			}
			size += info.Size()
			return linkOrCopy(path, target, info.Mode().Perm())
		default:
			return fmt.Errorf("%s is neither file, folder nor link", path)
		}
	})
	return size, err
}

// linkOrCopy saves the copy where the work folder is on the same filesystem.
func linkOrCopy(from, to string, mode fs.FileMode) (err error) {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// findTool looks in PATH and in the administrator's folders, which an ordinary user's PATH lacks.
func findTool(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %s: not installed (package e2fsprogs)", name)
}
