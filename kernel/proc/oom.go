// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"github.com/koord-rt/koord-rt/kernel/root"
)

// Limits of /proc/PID/oom_score_adj (include/uapi/linux/oom.h, OOM_SCORE_ADJ_MIN and _MAX).
const (
	MinOOMScoreAdj = -1000
	MaxOOMScoreAdj = 1000
)

// OOMScoreAdj reads /proc/PID/oom_score_adj, -1000..1000. A process that is gone gives fs.ErrNotExist.
func (fs FS) OOMScoreAdj(pid int) (int, error) {
	path := fs.pid(pid, "oom_score_adj")
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", path, err)
	}
	return n, nil
}

// SetOOMScoreAdj writes /proc/PID/oom_score_adj. It applies to the whole process and to what it forks later
// (Documentation/filesystems/proc.rst, 3.1).
func (fs FS) SetOOMScoreAdj(pid, value int) error {
	if value < MinOOMScoreAdj || value > MaxOOMScoreAdj {
		return fmt.Errorf("set oom_score_adj of %d: %d is not between %d and %d", pid, value, MinOOMScoreAdj, MaxOOMScoreAdj)
	}
	return root.Write(fs.pid(pid, "oom_score_adj"), strconv.Itoa(value))
}
