// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// cpioWriter writes the "newc" format of kernel doc driver-api/early-userspace/buffer-format: a 110 byte header of hex
// fields, the name and the content, each padded to four bytes.
type cpioWriter struct {
	w     *bufio.Writer
	inode int
}

const (
	cpioDir     = 0o040755
	cpioProgram = 0o100755
	cpioFile    = 0o100644
	cpioDevice  = 0o020600
	cpioEnd     = "TRAILER!!!"
)

func newCPIO(w io.Writer) *cpioWriter { return &cpioWriter{w: bufio.NewWriterSize(w, 1<<20)} }

// add writes one entry; name is relative, without a leading slash.
func (c *cpioWriter) add(name string, mode int, content []byte) error {
	return c.entry(name, mode, [2]int{}, content)
}

// addDevice writes a character device.
func (c *cpioWriter) addDevice(name string, major, minor int) error {
	return c.entry(name, cpioDevice, [2]int{major, minor}, nil)
}

func (c *cpioWriter) entry(name string, mode int, device [2]int, content []byte) error {
	c.inode++
	_, err := fmt.Fprintf(c.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.inode, mode, 0, 0, 1, 0, len(content), 0, 0, device[0], device[1], len(name)+1, 0, name)
	if err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	const header = 110
	_, err1 := c.w.Write(make([]byte, padding(header+len(name)+1)))
	_, err2 := c.w.Write(content)
	_, err3 := c.w.Write(make([]byte, padding(len(content))))
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	return nil
}

// addFile copies a file of the host.
func (c *cpioWriter) addFile(name string, mode int, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read initramfs file: %w", err)
	}
	return c.add(name, mode, data)
}

func (c *cpioWriter) close() error {
	if err := c.add(cpioEnd, 0, nil); err != nil {
		return err
	}
	if err := c.w.Flush(); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	return nil
}

func padding(n int) int { return -n & 3 }
