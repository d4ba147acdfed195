// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/model/unit"
)

// MemTotal reads the usable memory of the machine from /proc/meminfo, which is also what the kubelet calls capacity.
func (fs FS) MemTotal() (unit.Bytes, error) {
	path := fs.Path("meminfo")
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	total, err := parseMemTotal(string(b))
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", path, err)
	}
	return total, nil
}

// parseMemTotal finds "MemTotal:       24684084 kB" (Documentation/filesystems/proc.rst, meminfo; kB are KiB).
func parseMemTotal(s string) (unit.Bytes, error) {
	for line := range strings.Lines(s) {
		rest, ok := strings.CutPrefix(line, "MemTotal:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil || kib < 0 || kib > math.MaxInt64/1024 {
			return 0, fmt.Errorf("%.40q is no amount of memory", line)
		}
		return unit.Bytes(kib * 1024), nil
	}
	return 0, errors.New("no MemTotal")
}
