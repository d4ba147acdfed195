// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"bytes"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
)

// VMStat counts, since boot, what tells that memory is short.
type VMStat struct {
	// AllocStall: allocations that had to reclaim memory themselves, all zones together.
	AllocStall uint64
}

// VMStatFile keeps /proc/vmstat open. Not for concurrent use.
func (fs FS) VMStatFile() (*root.File[VMStat], error) {
	return root.NewFile(string(fs), "vmstat", parseVMStat)
}

// parseVMStat reads /proc/vmstat, counts since boot:
//
//	nr_free_pages 5656627
//	allocstall_normal 0
//	allocstall_movable 15
//
// mm/vmstat.c, vmstat_text; before 4.10 allocstall was one counter. On an error s is as before.
func parseVMStat(b []byte, s *VMStat) error {
	var out VMStat
	seen := false
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		key, rest := scan.Field(line)
		if !bytes.HasPrefix(key, []byte("allocstall")) {
			continue
		}
		n, _, ok := scan.UintField(rest)
		if !ok {
			return scan.ErrFormat
		}
		out.AllocStall += n
		seen = true
	}
	if !seen {
		return scan.ErrFormat
	}
	*s = out
	return nil
}
