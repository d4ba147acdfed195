// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package root

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Below names the directories in the one at the concatenation of parts. Where there are none, which is the rule in a container's cgroup, that is one system call that
// allocates nothing: a directory of kernfs counts those in it as its links (fs/kernfs/dir.c). A filesystem that does not count
// says less than two. Errors are *FileError and *fs.PathError.
func (b *Buffer) Below(parts ...string) ([]string, error) {
	b.join(parts)
	none, err := b.childless()
	if none || err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(string(b.path[:len(b.path)-1]))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// childless reports that the directory at the buffer's path says to have none in it. Without statx(2), before Linux 4.11, it is not known.
func (b *Buffer) childless() (bool, error) {
	at, name, flags := unix.AT_FDCWD, b.path, 0
	if f := b.files; f != nil {
		if i := f.find(f.dirs, b.path[:len(b.path)-1], false); i >= 0 {
			at, name, flags = f.dirs[i].fd, b.path[len(b.path)-1:], unix.AT_EMPTY_PATH
		}
	}
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(at), uintptr(unsafe.Pointer(&name[0])), uintptr(flags), unix.STATX_NLINK, uintptr(unsafe.Pointer(&b.stat)), 0)
		switch errno {
		case 0:
			return b.stat.Nlink == 2, nil
		case unix.EINTR:
		case unix.ENOSYS, unix.EPERM: // EPERM: a seccomp filter from before statx
			return false, nil
		default:
			return false, b.fail("stat", errno)
		}
	}
}
