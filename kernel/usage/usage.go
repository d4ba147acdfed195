// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package usage reads the accounting of cgroups: CPU time, throttling and memory, on both cgroup versions, with the files
// kept open; and on request the slower tables: pressure, IO, memory per NUMA node, idle pages, limits.
//
// FS is made once by Open, the only place where the version is asked. A Cgroup holds up to four descriptors and Read reads
// the files that are asked for once, without allocating. Every file has one pure parser, whose comment shows path, form, unit and kernel
// document. Output is counters as the kernel keeps them; rates are the caller's. It imports model/unit, model/node,
// kernel/cgroup/v1, kernel/root, kernel/scan, kernel/psi, golang.org/x/sys and the standard library only, and writes nothing.
package usage

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
)

// ErrGone is wrapped when the cgroup does not exist or exists no more (ENOENT, ENODEV).
var ErrGone = errors.New("cgroup is gone")

// ErrNoFile is wrapped when this kernel, version or hierarchy has no such file.
var ErrNoFile = errors.New("no such accounting file")

// maxFiles bounds the descriptors of one cgroup.
const maxFiles = 4

// file is one accounting file that is kept open.
type file struct {
	part  Part
	base  string // mount point of its hierarchy; empty when that is not mounted
	name  string
	parse func([]byte, *Counters) error
}

// layout is where a cgroup version keeps what.
type layout struct {
	files [maxFiles]file
	// cpu, cpuset, memory and io are mount points; pressure are those where pressure files may be, best first.
	cpu, cpuset, memory, io string
	pressure                []string
	tables                  tables
}

// tables are the readers of what is not read every second; a nil one is a table that the version does not have.
type tables struct {
	io     func(c *Cgroup, b *root.Buffer, out *IO) error
	numa   func(c *Cgroup, b *root.Buffer, out *NUMA) error
	limits func(c *Cgroup, b *root.Buffer, out *Limits) error
	events func(c *Cgroup, b *root.Buffer, out *Events) error
}

// FS is one node's cgroup accounting. It is immutable and safe for concurrent use.
type FS struct{ layout }

// Open chooses the version's files. On v1 it fails when neither cpuacct nor memory is mounted below r.Cgroup.
func Open(r root.Roots, v node.CgroupVersion) (*FS, error) {
	if v == node.CgroupV2 {
		return &FS{layoutV2(r.Cgroup)}, nil
	}
	l := layoutV1(r.Cgroup)
	if l.files[0].base == "" && l.memory == "" {
		return nil, fmt.Errorf("open cgroup accounting: neither cpuacct nor memory is mounted below %s", r.Cgroup)
	}
	return &FS{l}, nil
}

// Cgroup is one cgroup whose accounting files are open: one descriptor for each file. Not for concurrent use.
type Cgroup struct {
	fs   *FS
	path string
	want Part
	held [maxFiles]root.Held
	// reads counts until the files that were missing are looked for again.
	reads uint32
}

// Open opens the accounting of the cgroup at path, "/kubepods/besteffort", as far as it is wanted. Files that are missing are
// tried again by Read: on v1 a runtime makes a container's directories one after the other. It is ErrGone when there is none.
func (fs *FS) Open(path string, want Part) (*Cgroup, error) {
	c, err := fs.At(path)
	if err != nil {
		return nil, err
	}
	c.want = want
	if err := c.open(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// At is a cgroup for its tables only: it holds no descriptor, and Read is not for it. Whether it exists shows when a table is read.
func (fs *FS) At(path string) (*Cgroup, error) {
	if err := root.CheckRel(path); err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	if path = strings.Trim(path, "/"); path != "" {
		path = "/" + path
	}
	return &Cgroup{fs: fs, path: path}, nil
}

// open opens what is not open. It fails when nothing is.
func (c *Cgroup) open() error {
	found := false
	for i := range c.fs.files {
		f := &c.fs.files[i]
		if c.held[i].Open() {
			found = true
			continue
		}
		if f.base == "" || f.part&c.want == 0 {
			continue
		}
		held, err := root.Hold(f.base+c.path, f.name)
		switch {
		case err == nil:
			c.held[i], found = held, true
		case !gone(err):
			return fmt.Errorf("open cgroup: %w", err)
		}
	}
	if !found {
		return fmt.Errorf("open cgroup %s: %w", c.path, ErrGone)
	}
	return nil
}

// gone: ENOENT where the directory is not there, ENODEV from a file that was open when it was removed.
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) }

// Missing files are looked for at each of the first reads and at every so many later ones.
const (
	eagerReads = 8
	lazyReads  = 64
)

// Read reads the files of some parts, each once; what out has of the others stays. out says in Have what it holds: a file that
// cannot be read or parsed costs its part only, and the error. On v2 the two parts of the CPU are one file. When the cgroup was
// removed the error is ErrGone and nothing is valid. It does not allocate unless it fails.
func (c *Cgroup) Read(b *root.Buffer, parts Part, out *Counters) error {
	if c.reads++; c.reads <= eagerReads || c.reads%lazyReads == 0 {
		if err := c.open(); err != nil {
			*out = Counters{}
			return err
		}
	}
	out.Have &^= parts
	var failed error
	for i := range c.held {
		h, f := &c.held[i], &c.fs.files[i]
		if f.part&parts == 0 || !h.Open() {
			continue
		}
		out.Have &^= f.part
		raw, err := h.Read(b)
		if err == nil {
			if err = f.parse(raw, out); err != nil {
				err = fmt.Errorf("parse %s: %w", h.Path(), err)
			}
		}
		switch {
		case err == nil:
		case gone(err):
			*out = Counters{}
			return fmt.Errorf("%w: %w", ErrGone, err)
		default:
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// Path is the cgroup's path below the hierarchies.
func (c *Cgroup) Path() string { return c.path }

// Close gives the descriptors back. A later Read opens the files again.
func (c *Cgroup) Close() {
	c.reads = 0
	for i := range c.held {
		c.held[i].Close()
	}
}
