// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package parts builds or installs the real parts of the test lab (containerd,
// runc, crictl, a container image) into a cache outside the repository.
//
// Input: versions.env through package lab, the Go module proxy and Debian
// packages. Output: one folder per part, named by version and a hash of its
// recipe, complete or absent. It must not import any package under test.
package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Spec names one folder of the cache.
type Spec struct {
	Name    string // required, file-name safe: containerd-2.4
	Version string // required: 2.4.2
	Recipe  string // required: everything that changes the result; hashed into the folder name
}

// Folder is the name of the part's folder: name-version-hash.
func (s Spec) Folder() string {
	sum := sha256.Sum256([]byte(s.Recipe))
	return fmt.Sprintf("%s-%s-%s", s.Name, s.Version, hex.EncodeToString(sum[:])[:10])
}

// Options of a Cache.
type Options struct {
	Root     string    // optional; default $KOORD_RT_CACHE, else the user's cache folder + /koord-rt
	Progress io.Writer // optional; default discard. Lines for humans.
}

// givenParts reads "part=folder part=folder": parts that are already there, as in a
// virtual machine that has neither a compiler nor apt.
func givenParts(list string) map[string]string {
	given := map[string]string{}
	for _, f := range strings.Fields(list) {
		if part, dir, ok := strings.Cut(f, "="); ok {
			given[part] = dir
		}
	}
	return given
}

// Cache is a folder of built parts, safe for use by several processes at once.
type Cache struct {
	root     string
	progress io.Writer
	given    map[string]string // part -> folder, from $KOORD_RT_PARTS
}

// Open returns the cache, creating its folder if needed.
func Open(o Options) (*Cache, error) {
	root := o.Root
	if root == "" {
		root = os.Getenv("KOORD_RT_CACHE")
	}
	if root == "" {
		base, err := os.UserCacheDir() // honours XDG_CACHE_HOME
		if err != nil {
			return nil, fmt.Errorf("locate cache: %w; set KOORD_RT_CACHE", err)
		}
		root = filepath.Join(base, "koord-rt")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("locate cache: %w", err)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("create cache: %w", err)
	}
	c := &Cache{root: root, progress: o.Progress, given: givenParts(os.Getenv("KOORD_RT_PARTS"))}
	if c.progress == nil {
		c.progress = io.Discard
	}
	return c, nil
}

// Root is the absolute path of the cache.
func (c *Cache) Root() string { return c.root }

// Printf writes one progress line.
func (c *Cache) Printf(format string, args ...any) {
	fmt.Fprintf(c.progress, "lab: "+format+"\n", args...)
}

// Ensure returns the folder of s, running build in a temporary folder of the same
// file system first if it is absent. A rename makes the result visible, so a folder
// that exists is complete; a file lock keeps two processes from building twice.
func (c *Cache) Ensure(ctx context.Context, s Spec, build func(ctx context.Context, dir string) error) (string, error) {
	final := filepath.Join(c.root, s.Folder())
	if isDir(final) {
		return final, nil
	}
	unlock, err := c.Lock(ctx, s.Folder())
	if err != nil {
		return "", err
	}
	defer unlock()
	if isDir(final) { // another process built it while we waited
		return final, nil
	}
	tmp, err := os.MkdirTemp(c.root, ".build-")
	if err != nil {
		return "", fmt.Errorf("create build folder: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", fmt.Errorf("create build folder: %w", err)
	}
	c.Printf("%s %s: building", s.Name, s.Version)
	start := time.Now()
	if err := build(ctx, tmp); err != nil {
		return "", fmt.Errorf("build %s %s: %w", s.Name, s.Version, err)
	}
	if err := os.Rename(tmp, final); err != nil {
		return "", fmt.Errorf("publish %s: %w", final, err)
	}
	c.Printf("%s %s: ready after %s in %s", s.Name, s.Version, time.Since(start).Round(100*time.Millisecond), final)
	return final, nil
}

// Lock takes the cache's lock of that name, waiting until ctx ends. The lock goes
// away with the process that holds it.
func (c *Cache) Lock(ctx context.Context, name string) (unlock func(), err error) {
	dir := filepath.Join(c.root, ".locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create lock folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, strings.ReplaceAll(name, "/", "_")), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for waited := false; ; waited = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if !waited {
			c.Printf("%s: another process is at work, waiting", name)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
