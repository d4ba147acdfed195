// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package root

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Files are kernel files that stay open from one use to the next: to look a file up costs the kernel more than to read
// or write it, and most of all in a cgroup that was made a moment ago. A file is opened when it is first read through a
// buffer of Get, and the directory of a file that is to be written with it, so that the others in there are found from it.
// Close gives everything back. The zero value is ready. Not for concurrent use.
type Files struct {
	// names holds the paths of what is open, one after the other.
	names       []byte
	dirs, files []opened
	many        bool
}

// opened is a descriptor with its path's place in names.
type opened struct {
	from, to, fd int
	write        bool
}

// maxOpen bounds the files that one Files opens and keeps; more are opened and closed at each use.
const maxOpen = 32

// Get takes a buffer from the pool that reads through f; a nil f opens and closes at each Read. It is used up by Put.
func (f *Files) Get() *Buffer {
	b := Get()
	b.files = f
	return b
}

// Many says whether the files that are opened next share their directory with several others: then it is worth to open that
// first.
func (f *Files) Many(yes bool) {
	if f != nil {
		f.many = yes
	}
}

// ReadToWrite is Read of a file that is likely to be written next: with a buffer of Files.Get it is opened for both.
func (b *Buffer) ReadToWrite(parts ...string) ([]byte, error) {
	b.write = true
	raw, err := b.Read(parts...)
	b.write = false
	return raw, err
}

// keeps reports whether the file at a NUL-terminated path is open or may be.
func (f *Files) keeps(path []byte) bool {
	return f != nil && (len(f.files) < maxOpen || f.find(f.files, path[:len(path)-1], false) >= 0)
}

// read reads the file at the buffer's path from its beginning.
func (f *Files) read(b *Buffer) ([]byte, error) {
	fd, err := f.open(b.path, b.write)
	if err != nil {
		return nil, b.fail("open", err)
	}
	n, err := b.drain(fd, true)
	if err != nil {
		return nil, b.fail("read", err)
	}
	return b.trimmed(n), nil
}

// open finds or opens a NUL-terminated path. What cannot be opened for writing is opened for reading.
func (f *Files) open(path []byte, write bool) (int, error) {
	end := len(path) - 1
	if i := f.find(f.files, path[:end], write); i >= 0 {
		return f.files[i].fd, nil
	}
	at, name := unix.AT_FDCWD, path
	slash := bytes.LastIndexByte(path[:end], '/')
	i := f.find(f.dirs, path[:max(slash, 0)], false)
	if i < 0 && (write || f.many) && slash > 0 {
		path[slash] = 0
		fd, err := openAt(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
		path[slash] = '/'
		if err != nil {
			return -1, err
		}
		i = len(f.dirs)
		f.dirs = append(f.dirs, f.keep(path[:slash], fd, false))
	}
	if i >= 0 {
		at, name = f.dirs[i].fd, path[slash+1:]
	}
	if write {
		fd, err := openAt(at, name, unix.O_RDWR|unix.O_CLOEXEC)
		if err == nil {
			f.files = append(f.files, f.keep(path[:end], fd, true))
			return fd, nil
		}
		if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EROFS) {
			return -1, err
		}
	}
	fd, err := openAt(at, name, unix.O_RDONLY|unix.O_CLOEXEC)
	if err == nil {
		f.files = append(f.files, f.keep(path[:end], fd, false))
	}
	return fd, err
}

// Open opens the file at a path for later reads, unless there are many already. It reads nothing: cgroup v1 keeps the list of processes of a file's
// first read for a second (kernel/cgroup/cgroup-v1.c, cgroup_pidlist_start).
func (f *Files) Open(path string) error {
	b := f.Get()
	defer b.Put()
	b.join([]string{path})
	if !f.keeps(b.path) {
		return nil
	}
	if _, err := f.open(b.path, false); err != nil {
		return b.fail("open", err)
	}
	return nil
}

// find is the index of a path among what is open, -1 when it is not, or not for writing.
func (f *Files) find(list []opened, path []byte, write bool) int {
	for i := range list {
		if o := &list[i]; (o.write || !write) && bytes.Equal(f.names[o.from:o.to], path) {
			return i
		}
	}
	return -1
}

func (f *Files) keep(path []byte, fd int, write bool) opened {
	from := len(f.names)
	f.names = append(f.names, path...)
	return opened{from, len(f.names), fd, write}
}

// Lend has f use fd, which is open for reading and writing, for the file at path, until Take or Close.
func (f *Files) Lend(path string, fd int) {
	from := len(f.names)
	f.names = append(f.names, path...)
	f.files = append(f.files, opened{from, len(f.names), fd, true})
}

// Take gives up the descriptor of a file that was read to be written, or lent: from now on it is the caller's to close. ok is false where
// there is none.
func (f *Files) Take(path string) (fd int, ok bool) {
	i := f.written(path)
	if i < 0 {
		return -1, false
	}
	fd = f.files[i].fd
	f.files = slices.Delete(f.files, i, i+1)
	return fd, true
}

// written is the index of a file that is open for writing, -1 for none.
func (f *Files) written(path string) int {
	return slices.IndexFunc(f.files, func(o opened) bool { return o.write && string(f.names[o.from:o.to]) == path })
}

// Alive reports whether an open kernel file can still be read: one of a cgroup that was removed cannot (ENODEV), also where there is
// another one at its path by now. One of a cgroup that was moved, which v1 allows, can.
func Alive(fd int) bool {
	var b [1]byte
	for {
		if _, err := unix.Pread(fd, b[:], 0); err != unix.EINTR {
			return err == nil
		}
	}
}

// Alive reports whether each directory whose files are open is still there. Lists of processes are not asked: see Open.
func (f *Files) Alive() bool {
	var last []byte
	for i := range f.files {
		o := &f.files[i]
		path := f.names[o.from:o.to]
		dir := path[:bytes.LastIndexByte(path, '/')+1]
		if string(path[len(dir):]) == "cgroup.procs" || bytes.Equal(dir, last) {
			continue
		}
		if !Alive(o.fd) {
			return false
		}
		last = dir
	}
	return true
}

// Write is the package's Write, through the descriptor of a file that was read to be written.
func (f *Files) Write(path, value string) error {
	i := -1
	if f != nil {
		i = f.written(path)
	}
	if i < 0 {
		return Write(path, value)
	}
	return WriteOpen(f.files[i].fd, path, value)
}

// WriteOpen is the package's Write of a kernel file that is open for writing as fd; path is for the error.
func WriteOpen(fd int, path, value string) error {
	for {
		n, err := unix.Pwrite(fd, []byte(value), 0)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return &FileError{Op: "write", Path: path, Value: value, Err: err}
		case n != len(value):
			return &FileError{Op: "write", Path: path, Value: value, Err: fmt.Errorf("%d of %d bytes taken", n, len(value))}
		}
		return nil
	}
}

// Inode is the package's Inode, of the directory that is open where it is.
func (f *Files) Inode(dir string) (uint64, error) {
	if f != nil {
		for i := range f.dirs {
			o := &f.dirs[i]
			if string(f.names[o.from:o.to]) != dir {
				continue
			}
			var st unix.Stat_t
			if err := unix.Fstat(o.fd, &st); err != nil {
				return 0, fmt.Errorf("stat %s: %w", dir, err)
			}
			return st.Ino, nil
		}
	}
	return Inode(dir)
}

// Close gives every descriptor back; what is read next is opened anew.
func (f *Files) Close() {
	for _, list := range [...][]opened{f.files, f.dirs} {
		for i := range list {
			unix.Close(list[i].fd) //nolint:errcheck // kernel files report errors in write
		}
	}
	f.names, f.files, f.dirs = f.names[:0], f.files[:0], f.dirs[:0]
}
