// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package resctrl

import (
	"cmp"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/root"
)

// CountState says whether the hardware gave a number.
type CountState uint8

// States of a count.
const (
	// NoFile: this machine does not count that.
	NoFile CountState = iota
	// Counted: the number is valid.
	Counted
	// Unavailable: the counter is not ready, ask again ("Unavailable"). What was read before is still the best there is.
	Unavailable
	// Unassigned: no hardware counter is assigned to the group ("Unassigned", AMD's ABMC, Linux 6.18).
	Unassigned
	// Failed: the hardware reports an error for this group ("Error").
	Failed
)

// Count is one file of mon_data.
type Count struct {
	State CountState
	// Value is in bytes: occupied now, or transferred since the group was made. 0 unless Counted.
	Value uint64
}

// Domain is what one group does in one last-level cache.
type Domain struct {
	// ID is the cache's id, as in schemata.
	ID int
	// Occupancy is the cache held. Local and Total are the memory traffic of the cache's own NUMA node, and all of it.
	Occupancy, Local, Total Count
}

// Groups lists the control groups in the order of names, without the root group; none when resctrl is not mounted.
func (fs FS) Groups() ([]string, error) { return groupsIn(string(fs)) }

// MonGroups lists the monitoring groups below a control group ("" is the root group) in the order of names; none when the group has gone or
// the machine does not count.
func (fs FS) MonGroups(group string) ([]string, error) {
	dir, err := fs.dir(group)
	if err != nil {
		return nil, err
	}
	return groupsIn(filepath.Join(dir, "mon_groups"))
}

func groupsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && ValidName(e.Name()) == nil {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Monitor reads a control group's counters ("" is the root group) by cache, or with mon those of a monitoring group below it,
// in the order of ids. A machine without counters has none. With sub-NUMA clustering (6.11) the sum over a cache is read. The
// files change slowly and are read every many seconds, so none is kept open.
func (fs FS) Monitor(group, mon string) ([]Domain, error) {
	dir, err := fs.dir(group)
	if mon != "" {
		dir, err = fs.monDir(group, mon)
	}
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "mon_data")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var out []Domain
	var errs []error
	for _, e := range entries {
		id, ok := domainID(e.Name())
		if !ok {
			continue
		}
		d, err := readDomain(dir+"/"+e.Name(), id)
		out, errs = append(out, d), append(errs, err)
	}
	slices.SortFunc(out, func(a, b Domain) int { return cmp.Compare(a.ID, b.ID) })
	return out, errors.Join(errs...)
}

// domainID reads "mon_L3_01" (resctrl.rst, "Resource alloc and monitor groups").
func domainID(name string) (id int, ok bool) {
	digits, ok := strings.CutPrefix(name, "mon_L3_")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}

func readDomain(dir string, id int) (Domain, error) {
	d := Domain{ID: id}
	b := root.Get()
	defer b.Put()
	var errs []error
	for _, f := range [...]struct {
		name  string
		count *Count
	}{{"llc_occupancy", &d.Occupancy}, {"mbm_local_bytes", &d.Local}, {"mbm_total_bytes", &d.Total}} {
		raw, err := b.Read(dir, "/", f.name)
		switch {
		case errors.Is(err, iofs.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		default:
			if *f.count, err = ParseCount(string(raw)); err != nil {
				errs = append(errs, fmt.Errorf("parse %s/%s: %w", dir, f.name, err))
			}
		}
	}
	return d, errors.Join(errs...)
}

// ParseCount reads a file of mon_data: bytes in decimal, with the newline or without, or a word where the hardware has no number
// (Documentation/filesystems/resctrl.rst, "mon_data"; fs/resctrl/ctrlmondata.c, rdtgroup_mondata_show):
//
//	1277952
func ParseCount(s string) (Count, error) {
	switch s = strings.TrimSpace(s); s {
	case "Unavailable":
		return Count{State: Unavailable}, nil
	case "Unassigned":
		return Count{State: Unassigned}, nil
	case "Error":
		return Count{State: Failed}, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return Count{}, fmt.Errorf("%.40q is no count", s)
	}
	return Count{State: Counted, Value: n}, nil
}
