// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// configSuffix ends the name of every configuration that Start writes.
const configSuffix = ".koord-rt-registry.yml"

// RemoveStale kills registries of Start whose configuration is gone: whoever started
// them died, and the lab's folder has been removed since.
func RemoveStale() error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	var errs []error
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err != nil || !stale(line) {
			continue // gone, or not ours
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("kill stale registry %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// stale reads a command line of Start, NUL between the arguments.
func stale(line []byte) bool {
	args := bytes.Split(bytes.TrimRight(line, "\x00"), []byte{0})
	if len(args) != 3 || string(args[1]) != "serve" || !strings.HasSuffix(string(args[2]), configSuffix) {
		return false
	}
	_, err := os.Stat(string(args[2]))
	return errors.Is(err, fs.ErrNotExist)
}
