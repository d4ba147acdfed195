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
	// ScanDirect and ScanKswapd: pages that allocations, and the kernel's thread, looked at for reclaim.
	ScanDirect, ScanKswapd uint64
	// RefaultAnon and RefaultFile: pages that were reclaimed and needed again; both are in RefaultFile before Linux 5.9.
	RefaultAnon, RefaultFile uint64
	// MajorFaults had to read from a device. OOMKill counts killed processes (Linux 4.13).
	MajorFaults, OOMKill uint64
}

// VMStatFile keeps /proc/vmstat open. Not for concurrent use.
func (fs FS) VMStatFile() (*root.File[VMStat], error) {
	return root.NewFile(string(fs), "vmstat", parseVMStat)
}

// parseVMStat reads /proc/vmstat, counts since boot:
//
//	allocstall_normal 0
//	pgscan_direct 0
//	workingset_refault_file 71909
//	oom_kill 0
//
// mm/vmstat.c, vmstat_text; before 4.10 allocstall was one counter, and the scans were split by zone. On an error s is as before.
func parseVMStat(b []byte, s *VMStat) error {
	var out VMStat
	seen := false
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		i := bytes.IndexByte(line, ' ')
		if i < 0 {
			continue
		}
		field := out.field(line[:i])
		if field == nil {
			continue
		}
		n, ok := scan.Uint(line[i+1:])
		if !ok {
			return scan.ErrFormat
		}
		*field += n
		seen = true
	}
	if !seen {
		return scan.ErrFormat
	}
	*s = out
	return nil
}

func (s *VMStat) field(key []byte) *uint64 {
	switch string(key) {
	case "pgscan_direct":
		return &s.ScanDirect
	case "pgscan_kswapd":
		return &s.ScanKswapd
	case "workingset_refault_anon":
		return &s.RefaultAnon
	case "workingset_refault_file", "workingset_refault":
		return &s.RefaultFile
	case "pgmajfault":
		return &s.MajorFaults
	case "oom_kill":
		return &s.OOMKill
	}
	if bytes.HasPrefix(key, []byte("allocstall")) {
		return &s.AllocStall
	}
	return nil
}
