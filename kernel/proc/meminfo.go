// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"errors"
	"math"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Meminfo is the machine's memory, from /proc/meminfo.
type Meminfo struct {
	// Total is the usable memory, which is also what the kubelet calls capacity. Available is what new work could get
	// without swapping.
	Total, Free, Available, Cached, SwapTotal, SwapFree unit.Bytes
}

// Used = Total − Available: memory without the page cache that can be dropped.
func (m *Meminfo) Used() unit.Bytes { return max(m.Total-m.Available, 0) }

// UsedWithPageCache = Total − Free.
func (m *Meminfo) UsedWithPageCache() unit.Bytes { return max(m.Total-m.Free, 0) }

// MeminfoFile keeps /proc/meminfo open. Not for concurrent use.
func (fs FS) MeminfoFile() (*root.File[Meminfo], error) {
	return root.NewFile(string(fs), "meminfo", parseMeminfo)
}

// MemTotal reads the usable memory of the machine from /proc/meminfo.
func (fs FS) MemTotal() (unit.Bytes, error) {
	f, err := fs.MeminfoFile()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := root.Get()
	defer b.Put()
	var m Meminfo
	err = f.Read(b, &m)
	return m.Total, err
}

var errNoMemTotal = errors.New("no MemTotal")

// parseMeminfo reads /proc/meminfo, KiB under the name of kB:
//
//	MemTotal:       24684096 kB
//	MemFree:        22626508 kB
//	MemAvailable:   24197740 kB
//
// Documentation/filesystems/proc.rst, meminfo. MemAvailable exists since 3.14. On an error m is as before.
func parseMeminfo(b []byte, m *Meminfo) error {
	var out Meminfo
	seen := false
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		key, rest := scan.Field(line)
		var field *unit.Bytes
		switch string(key) {
		case "MemTotal:":
			field, seen = &out.Total, true
		case "MemFree:":
			field = &out.Free
		case "MemAvailable:":
			field = &out.Available
		case "Cached:":
			field = &out.Cached
		case "SwapTotal:":
			field = &out.SwapTotal
		case "SwapFree:":
			field = &out.SwapFree
		default:
			continue
		}
		kib, _, ok := scan.UintField(rest)
		if !ok || kib > math.MaxInt64/1024 {
			return scan.ErrFormat
		}
		*field = unit.Bytes(kib * 1024) //nolint:gosec // bounded above
	}
	if !seen {
		return errNoMemTotal
	}
	*m = out
	return nil
}
