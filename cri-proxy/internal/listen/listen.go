// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package listen makes the unix sockets that the proxy's clients connect to.
//
// Input is a path; output a listener whose socket only root can use. It imports the standard library alone.
package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// Unix makes the socket that clients connect to, mode 0600. One that is left of an earlier life is replaced in one step;
// one that somebody answers on, and a file that is no socket, are errors.
func Unix(path string) (*net.UnixListener, error) {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	case fi.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("listen on %s: a file that is no socket is there", path)
	default:
		if c, err := net.Dial("unix", path); err == nil {
			return nil, errors.Join(fmt.Errorf("listen on %s: somebody answers there already", path), c.Close())
		}
	}
	// Made in a folder that only we can enter, so that there is no moment at which others could connect.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // it has another name by then
	if err := errors.Join(os.Chmod(name, 0o600), os.Rename(name, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close())
	}
	return l, nil
}
