// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package root

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxPath is the kernel's PATH_MAX.
	maxPath = 4096
	// maxFile bounds what is read of a kernel file; cgroup.procs of a large pod is the largest that is read whole.
	maxFile = 1 << 22
)

// ErrTooLarge is wrapped when a file holds more than 4 MiB.
var ErrTooLarge = errors.New("kernel file too large")

// Buffer holds a path and a file's content. It is reused to read without allocating: Get one, Read as often as needed,
// Put it back. The bytes of the last Read are valid until the next Read or Put. Not for concurrent use.
type Buffer struct {
	path []byte
	data []byte
	// files keeps what is read open, where the buffer was taken from one; write has it opened for writing, too.
	files *Files
	write bool
	// stat is what Below asks for.
	stat unix.Statx_t
}

// buffers are made in one allocation: under the race detector a pool loses every fourth, and tests that count would see three.
var buffers = sync.Pool{New: func() any {
	b := new(struct {
		Buffer
		path [512]byte
		data [4096]byte
	})
	b.Buffer = Buffer{path: b.path[:0], data: b.data[:]}
	return &b.Buffer
}}

// Get takes a buffer from the pool.
func Get() *Buffer { return buffers.Get().(*Buffer) }

// Put gives the buffer back.
func (b *Buffer) Put() {
	b.files = nil
	if cap(b.data) <= 1<<16 {
		buffers.Put(b)
	}
}

// Read opens the file at the concatenation of parts, reads it whole and closes it. Parts are joined without separators,
// so that a caller need not build the path string. The result has no trailing newline. Errors are *FileError.
func (b *Buffer) Read(parts ...string) ([]byte, error) {
	b.join(parts)
	if b.files.keeps(b.path) {
		return b.files.read(b)
	}
	fd, err := openAt(unix.AT_FDCWD, b.path, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, b.fail("open", err)
	}
	n, err := b.drain(fd, false)
	unix.Close(fd) //nolint:errcheck // nothing was written
	if err != nil {
		return nil, b.fail("read", err)
	}
	return b.trimmed(n), nil
}

// join makes the buffer's path of parts, with the NUL that ends it.
func (b *Buffer) join(parts []string) {
	b.path = b.path[:0]
	for _, p := range parts {
		b.path = append(b.path, p...)
	}
	b.path = append(b.path, 0)
}

// trimmed is the first n bytes without newlines at their end.
func (b *Buffer) trimmed(n int) []byte {
	for n > 0 && b.data[n-1] == '\n' {
		n--
	}
	return b.data[:n]
}

// drain reads to the end of the file, from its position or with at from its beginning. A kernel file of less than the
// buffer's size ends with the first short read, which saves the second system call.
func (b *Buffer) drain(fd int, at bool) (int, error) {
	n := 0
	for {
		m, err := readFrom(fd, b.data[n:], n, at)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		n += m
		if m == 0 || n < len(b.data) && m < 2048 {
			return n, nil
		}
		if n < len(b.data) {
			continue
		}
		if len(b.data) >= maxFile {
			return 0, ErrTooLarge
		}
		b.data = append(b.data, make([]byte, len(b.data))...)
	}
}

func readFrom(fd int, p []byte, offset int, at bool) (int, error) {
	if at {
		return unix.Pread(fd, p, int64(offset))
	}
	return unix.Read(fd, p)
}

func (b *Buffer) fail(op string, err error) error {
	return &FileError{Op: op, Path: string(b.path[:len(b.path)-1]), Err: err}
}

// openAt opens a NUL-terminated path, relative to a directory or absolute. The standard wrappers copy every path to the heap; the proof at start reads a
// dozen files inside the runtime's event, so this one does not.
func openAt(dirfd int, path []byte, flags int) (int, error) {
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dirfd), uintptr(unsafe.Pointer(&path[0])), uintptr(flags), 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
		default:
			return -1, errno
		}
	}
}

// Read returns a small file's content without its trailing newline.
func Read(path string) (string, error) {
	b := Get()
	defer b.Put()
	raw, err := b.Read(path)
	return string(raw), err
}

// Write writes a value with one write(2), as cgroup files demand. Errors are *FileError.
func Write(path, value string) error { return write(path, value, 0) }

// WriteNonblock is Write on a descriptor with O_NONBLOCK: since 6.16 memory.high and memory.max then skip the
// synchronous reclaim; older kernels ignore the flag.
func WriteNonblock(path, value string) error { return write(path, value, unix.O_NONBLOCK) }

// write truncates as a shell does: kernel files ignore it, the plain files of a fake tree need it.
func write(path, value string, flags int) error {
	fd, err := retryOpen(path, unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC|flags)
	if err != nil {
		return &FileError{Op: "open", Path: path, Value: value, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // kernel files report errors in write
	for {
		n, err := unix.Write(fd, []byte(value))
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

func retryOpen(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// FileError names the file, the value and the cause. Err is a unix.Errno in nearly every case; errors.Is works with
// unix.ENOENT and with fs.ErrNotExist alike.
type FileError struct {
	Op    string // open, read, write
	Path  string
	Value string // what was to be written
	Err   error
}

// Error is `write /sys/fs/cgroup/x/cpu.max "1 2": invalid argument`.
func (e *FileError) Error() string {
	if e.Value == "" {
		return e.Op + " " + e.Path + ": " + e.Err.Error()
	}
	return fmt.Sprintf("%s %s %.128q: %v", e.Op, e.Path, e.Value, e.Err)
}

// Unwrap gives the errno.
func (e *FileError) Unwrap() error { return e.Err }
