// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package root

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Held is a kernel file that stays open and is read again from its beginning with pread(2): about 1 µs where open, read
// and close take 9. The zero value is closed. Not for concurrent use.
type Held struct {
	dir, name string
	// fd1 is the descriptor plus one, so that the zero value is none.
	fd1 int
}

// Hold opens dir/name for reading. Where the process or the system has no descriptor left (EMFILE, ENFILE), the file is
// opened at every Read instead: slower, but right. Errors are *FileError.
func Hold(dir, name string) (Held, error) {
	h := Held{dir: dir, name: name}
	fd, err := retryOpen(dir+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC)
	switch {
	case err == nil:
		h.fd1 = fd + 1
	case noDescriptor(err):
	default:
		return Held{}, &FileError{Op: "open", Path: dir + "/" + name, Err: err}
	}
	return h, nil
}

func noDescriptor(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// Exhausted reports whether the process or the system has no descriptor or memory left: the error says nothing of the file.
func Exhausted(err error) bool { return noDescriptor(err) || errors.Is(err, unix.ENOMEM) }

// Read fills the buffer with the file's present content, without the newline at its end. A file of a cgroup that was
// removed is unix.ENODEV. It does not allocate unless the file outgrows the buffer.
func (h *Held) Read(b *Buffer) ([]byte, error) {
	if h.fd1 == 0 {
		return b.Read(h.dir, "/", h.name)
	}
	n, err := b.drain(h.fd1-1, true)
	if err != nil {
		return nil, &FileError{Op: "read", Path: h.Path(), Err: err}
	}
	return b.trimmed(n), nil
}

// Path is the file's absolute path, empty for the zero value.
func (h *Held) Path() string {
	if h.name == "" {
		return ""
	}
	return h.dir + "/" + h.name
}

// Open reports whether the file has been held and not closed since.
func (h *Held) Open() bool { return h.name != "" }

// Close gives the descriptor back. A closed file stays closed; closing it again is no error.
func (h *Held) Close() {
	if h.fd1 != 0 {
		unix.Close(h.fd1 - 1) //nolint:errcheck // nothing was written
	}
	*h = Held{}
}

// File is a held file together with its parser.
type File[T any] struct {
	held  Held
	parse func([]byte, *T) error
}

// NewFile holds dir/name. parse reads the content into a value and says what is wrong with it.
func NewFile[T any](dir, name string, parse func([]byte, *T) error) (*File[T], error) {
	held, err := Hold(dir, name)
	if err != nil {
		return nil, err
	}
	return &File[T]{held: held, parse: parse}, nil
}

// Read reads and parses the present content. Errors are *FileError; what is in out is then not to be used.
func (f *File[T]) Read(b *Buffer, out *T) error {
	raw, err := f.held.Read(b)
	if err != nil {
		return err
	}
	if err := f.parse(raw, out); err != nil {
		return &FileError{Op: "parse", Path: f.held.Path(), Err: err}
	}
	return nil
}

// Close gives the descriptor back.
func (f *File[T]) Close() { f.held.Close() }
