// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Meminfo is the machine's memory, from /proc/meminfo.
type Meminfo struct {
	// Total is the usable memory, which is also what the kubelet calls capacity. Available is what new work could get
	// without swapping.
	Total, Free, Available, Cached unit.Bytes
}

// Used = Total − Available − what is free on lists of the CPUs (ZoneInfo.PerCPU): memory without the page cache that can be
// dropped. This is what a node uses wherever it is measured, reported or decided on.
func (m *Meminfo) Used(lists unit.Bytes) unit.Bytes { return max(m.Total-m.Available-lists, 0) }

// UsedWithPageCache = Total − Free − what is free on lists of the CPUs.
func (m *Meminfo) UsedWithPageCache(lists unit.Bytes) unit.Bytes {
	return max(m.Total-m.Free-lists, 0)
}

// MeminfoFile keeps /proc/meminfo open. Not for concurrent use.
func (fs FS) MeminfoFile() (*root.File[Meminfo], error) {
	return root.NewFile(string(fs), "meminfo", parseMeminfo)
}

// Meminfo reads /proc/meminfo once.
func (fs FS) Meminfo() (m Meminfo, err error) {
	f, err := fs.MeminfoFile()
	if err != nil {
		return Meminfo{}, err
	}
	defer f.Close()
	b := root.Get()
	defer b.Put()
	err = f.Read(b, &m)
	return m, err
}

// MemTotal reads the usable memory of the machine from /proc/meminfo.
func (fs FS) MemTotal() (unit.Bytes, error) {
	m, err := fs.Meminfo()
	return m.Total, err
}

// parseMeminfo reads /proc/meminfo, KiB under the name of kB:
//
//	MemTotal:       24684096 kB
//	MemFree:        22626508 kB
//	MemAvailable:   24197740 kB
//
// Documentation/filesystems/proc.rst, meminfo. MemAvailable exists since 3.14. On an error m is as before.
func parseMeminfo(b []byte, m *Meminfo) error {
	var out Meminfo
	if err := scan.Amounts(b, 0, []scan.Amount[unit.Bytes]{
		{Key: "MemTotal:", To: &out.Total}, {Key: "MemFree:", To: &out.Free}, {Key: "MemAvailable:", To: &out.Available},
		{Key: "Cached:", To: &out.Cached},
	}); err != nil {
		return err
	}
	*m = out
	return nil
}
