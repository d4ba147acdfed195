// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"math"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
)

// SectorSize is the unit of /proc/diskstats, whatever the device's own is.
const SectorSize = 512

// Disk is one block device's requests since boot: a disk, a partition or a stacked device.
type Disk struct {
	Major, Minor uint32
	Name         string
	// Reads and Writes are completed requests; their time is the sum over requests, from submission to completion.
	Reads, ReadBytes, ReadMS    uint64
	Writes, WriteBytes, WriteMS uint64
}

// DiskStats is /proc/diskstats, in the kernel's order.
type DiskStats struct{ Disks []Disk }

// DiskStatsFile keeps /proc/diskstats open. Not for concurrent use.
func (fs FS) DiskStatsFile() (*root.File[DiskStats], error) {
	return root.NewFile(string(fs), "diskstats", parseDiskStats)
}

// parseDiskStats reads /proc/diskstats, requests, sectors of 512 bytes and milliseconds:
//
//	254       0 vda 27944 6912 1247082 22415 34111 86230 5712976 39310 0 18304 69642 61443 52 4240512 7916 10 0
//
// After the name: reads, merged, sectors, ms; the same of writes; in flight, busy ms, weighted ms; discards (4.18) and flushes
// (5.5). Documentation/admin-guide/iostats.rst. Rows and names of the last reading are reused.
func parseDiskStats(b []byte, out *DiskStats) error {
	rows := out.Disks[:cap(out.Disks)]
	n := 0
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		if n == len(rows) {
			rows = append(rows, Disk{})
		}
		if !rows[n].parse(line) {
			return scan.ErrFormat
		}
		n++
	}
	out.Disks = rows[:n]
	return nil
}

// parse reads a line of /proc/diskstats (Documentation/admin-guide/iostats.rst).
func (d *Disk) parse(line []byte) bool {
	major, rest, ok1 := scan.UintField(line)
	minor, rest, ok2 := scan.UintField(rest)
	name, rest := scan.Field(rest)
	if !ok1 || !ok2 || major > math.MaxUint32 || minor > math.MaxUint32 || len(name) == 0 {
		return false
	}
	var c [10]uint64
	for i := range c {
		var ok bool
		if c[i], rest, ok = scan.UintField(rest); !ok {
			return false
		}
	}
	if c[2] > math.MaxUint64/SectorSize || c[6] > math.MaxUint64/SectorSize {
		return false
	}
	if string(name) != d.Name {
		d.Name = string(name)
	}
	d.Major, d.Minor = uint32(major), uint32(minor)
	d.Reads, d.ReadBytes, d.ReadMS = c[0], c[2]*SectorSize, c[3]
	d.Writes, d.WriteBytes, d.WriteMS = c[4], c[6]*SectorSize, c[7]
	return true
}
