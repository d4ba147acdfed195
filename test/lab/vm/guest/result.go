// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"archive/tar"
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

// writeResult puts output, the out folder and, last, the exit document as a tar stream on the output disk.
func writeResult(exit guestcfg.Exit) (err error) {
	dev, err := findDisk(guestcfg.OutSerial)
	if err != nil {
		return err
	}
	disk, err := os.OpenFile(dev, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open output disk: %w", err)
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	buffer := bufio.NewWriterSize(disk, 1<<20)
	w := tar.NewWriter(buffer)
	for file, name := range map[string]string{stdoutFile: guestcfg.StdoutEntry, stderrFile: guestcfg.StderrEntry} {
		if err := addFile(w, file, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := addTree(w, guestcfg.OutDir); err != nil {
		return err
	}
	doc, err := json.Marshal(exit)
	if err != nil {
		return fmt.Errorf("encode exit: %w", err)
	}
	if err := addEntry(w, guestcfg.ExitEntry, 0o644, int64(len(doc)), strings.NewReader(string(doc))); err != nil {
		return err
	}
	if err := errors.Join(w.Close(), buffer.Flush(), disk.Sync()); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// addTree adds the regular files below a folder; links and sockets stay behind.
func addTree(w *tar.Writer, root string) error {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return addFile(w, path, strings.TrimPrefix(path, "/"))
	})
	if errors.Is(err, fs.ErrNotExist) { // the setup failed before the folder was made
		return nil
	}
	return err
}

func addFile(w *tar.Writer, path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open result: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read result size: %w", err)
	}
	// A process that still writes may make the file longer: only what the header promises is taken.
	return addEntry(w, name, int64(info.Mode().Perm()), info.Size(), io.LimitReader(f, info.Size()))
}

func addEntry(w *tar.Writer, name string, mode, size int64, content io.Reader) error {
	h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size, Format: tar.FormatPAX}
	if err := w.WriteHeader(&h); err != nil {
		return fmt.Errorf("write result %s: %w", name, err)
	}
	if _, err := io.Copy(w, content); err != nil {
		return fmt.Errorf("write result %s: %w", name, err)
	}
	return nil
}
