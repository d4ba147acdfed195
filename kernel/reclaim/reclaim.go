// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package reclaim has the kernel take memory back from one cgroup, by memory.reclaim of cgroup v2 (Linux 5.19,
// Documentation/admin-guide/cgroup-v2.rst). It is an action that leaves no state behind, so it is in no plan and no ledger,
// and kernel/apply, which writes states, does not do it.
//
// Inputs are a cgroup's path and an amount, output is how much it brought. It imports model/*, kernel/root and the standard
// library only.
package reclaim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
)

const (
	// Most is the largest amount of one call.
	Most = unit.Bytes(1 << 30)
	// chunk is what one write asks for: the kernel returns when it has tried, so a context is looked at in between.
	chunk = unit.Bytes(16 << 20)

	name = "memory.reclaim"
)

// ErrUnsupported is wrapped where a cgroup that is there has no memory.reclaim.
var ErrUnsupported = errors.New("the kernel cannot be asked to reclaim")

// FS is one node's cgroup filesystem. It is immutable and safe for concurrent use.
type FS struct {
	root    string
	version node.CgroupVersion
	write   func(path, value string) error
}

// New does not touch the machine; [FS.Missing] tells what it has.
func New(r root.Roots, v node.CgroupVersion) FS {
	return FS{root: r.Cgroup, version: v, write: root.Write}
}

// Missing says why the kernel cannot be asked, for people; empty when it can. The root cgroup has no such file, so its
// children are looked at.
func (f FS) Missing() string {
	if f.version == node.CgroupV1 {
		return "cgroup v1 has no " + name
	}
	entries, err := os.ReadDir(f.root)
	if err != nil {
		return "no " + name + ": " + err.Error()
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if _, err := os.Stat(f.root + "/" + e.Name() + "/" + name); err == nil {
			return ""
		}
	}
	return "no cgroup has " + name + ": it appeared in Linux 5.19"
}

// Reclaim asks for an amount, Most at most, and returns how much of it came. Less is no error: there was no more to take
// without waiting, or the cgroup has gone. It ends early when ctx does, which a chunk under way delays.
func (f FS) Reclaim(ctx context.Context, cgroup string, amount unit.Bytes) (got unit.Bytes, err error) {
	if f.version == node.CgroupV1 || strings.Trim(cgroup, "/") == "" {
		return 0, fmt.Errorf("reclaim from %q: %w", cgroup, ErrUnsupported)
	}
	file, err := root.JoinFile(f.root, cgroup, name)
	if err != nil {
		return 0, fmt.Errorf("reclaim: %w", err)
	}
	if got, err = f.reclaim(ctx, cgroup, file, min(amount, Most)); err != nil && f.gone(cgroup, err) {
		return got, nil
	}
	return got, err
}

// reclaim writes an amount to a cgroup's file in chunks.
func (f FS) reclaim(ctx context.Context, cgroup, file string, amount unit.Bytes) (got unit.Bytes, err error) {
	for got < amount && ctx.Err() == nil {
		part := min(amount-got, chunk)
		before, err := f.used(cgroup)
		if err != nil {
			return got, fmt.Errorf("reclaim: %w", err)
		}
		switch err = f.write(file, strconv.FormatInt(int64(part), 10)); {
		case err == nil:
			got += part
			continue
		case errors.Is(err, unix.ENOENT):
			return got, fmt.Errorf("reclaim from %s: %w: %w", cgroup, ErrUnsupported, err)
		case !errors.Is(err, unix.EAGAIN):
			return got, fmt.Errorf("reclaim: %w", err)
		}
		// EAGAIN: the kernel has taken less than was asked for. How much it was shows in what is used, as far as the
		// cgroup has not grown meanwhile.
		after, err := f.used(cgroup)
		if err != nil {
			return got, fmt.Errorf("reclaim: %w", err)
		}
		return got + min(max(before-after, 0), part), nil
	}
	return got, nil
}

// gone reports that an error comes of the end of the cgroup: of its files, ENODEV is that of one that was open at that moment.
func (f FS) gone(cgroup string, err error) bool {
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		return false
	}
	dir, err := root.Join(f.root, cgroup)
	if err != nil {
		return false
	}
	_, err = os.Stat(dir)
	return errors.Is(err, os.ErrNotExist)
}

// used is memory.current.
func (f FS) used(cgroup string) (unit.Bytes, error) {
	b := root.Get()
	defer b.Put()
	path, err := root.JoinFile(f.root, cgroup, "memory.current")
	if err != nil {
		return 0, err
	}
	raw, err := b.Read(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %.64q is not a number", path, raw)
	}
	return unit.Bytes(n), nil
}
