// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vm

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

// unpackResult unpacks the tar stream of the output disk into dir. complete is false when the stream has no exit
// document: the guest ended too early, and what it did deliver is kept for the reader.
func unpackResult(image, dir string) (exit guestcfg.Exit, complete bool, err error) {
	f, err := os.Open(image)
	if err != nil {
		return exit, false, fmt.Errorf("open output disk: %w", err)
	}
	defer f.Close()
	root, err := os.OpenRoot(dir) // names come from the guest: nothing may land outside dir
	if err != nil {
		return exit, false, fmt.Errorf("open output folder: %w", err)
	}
	defer root.Close()
	stream := tar.NewReader(f)
	for {
		h, err := stream.Next()
		if err != nil { // io.EOF, or a stream cut off by a guest that died while writing
			return exit, false, nil //nolint:nilerr // incomplete is the answer, the caller reports it
		}
		if h.Name == guestcfg.ExitEntry {
			if err := json.NewDecoder(stream).Decode(&exit); err != nil {
				return exit, false, fmt.Errorf("parse guest exit: %w", err)
			}
			return exit, true, nil
		}
		if err := unpackFile(root, h, stream); err != nil {
			return exit, false, err
		}
	}
}

func unpackFile(root *os.Root, h *tar.Header, content io.Reader) (err error) {
	if err := root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
		return fmt.Errorf("create output folder: %w", err)
	}
	out, err := root.OpenFile(h.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, os.FileMode(h.Mode).Perm()|0o600)
	if err != nil {
		return fmt.Errorf("create output file: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, content); err != nil {
		return fmt.Errorf("unpack %s: %w", h.Name, err)
	}
	return nil
}
