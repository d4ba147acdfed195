// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package resctrl

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
)

// Limits of the MB line.
const (
	percentMax = 100
	// absoluteMax is AMD's "unlimited" where the root group does not say more, in 1/8 GB/s (resctrl.rst, "Memory
	// bandwidth Allocation … AMD").
	absoluteMax = 2048
	// mbpsMax is the software controller's "unlimited" (fs/resctrl, MBA_MAX_MBPS).
	mbpsMax = 1<<32 - 1
)

// Info reads the info directory and the root group's schemata (resctrl.rst, "Info directory"). mountOptions are those of
// the mount: mba_MBps changes the unit of the MB line. Without a mounted filesystem the result says why and there is no
// error; a file that cannot be read is an error, and what was read stands in the result.
func (fs FS) Info(mountOptions []string) (node.RDT, error) {
	if !fs.Mounted() {
		return node.RDT{Why: "no resctrl filesystem at " + string(fs) + ": not mounted, or the CPU has no RDT"}, nil
	}
	rdt := node.RDT{Mounted: true}
	ids, err := fs.Schemata("")
	if err != nil {
		return rdt, fmt.Errorf("read resctrl info: %w", err)
	}
	errs := []error{fs.l3Info(&rdt, ids), fs.mbInfo(&rdt, ids, mountOptions), fs.monInfo(&rdt)}
	if !rdt.L3 && !rdt.MB {
		rdt.Why = "resctrl is mounted, but without L3 cache or memory bandwidth allocation"
	}
	return rdt, errors.Join(errs...)
}

// l3Info reads info/L3, or info/L3CODE with code and data prioritization, whose L3DATA is its twin.
func (fs FS) l3Info(rdt *node.RDT, ids Schemata) error {
	dir := "L3"
	if !fs.has(dir) {
		if dir = "L3CODE"; !fs.has(dir) {
			return nil
		}
		rdt.L3CDP = true
	}
	cbm, err := fs.infoMask(dir, "cbm_mask")
	if err != nil {
		return err
	}
	minBits, err := fs.infoInt(dir, "min_cbm_bits")
	if err != nil {
		return err
	}
	closids, err := fs.infoInt(dir, "num_closids")
	if err != nil {
		return err
	}
	line, ok := ids.Line(dir)
	if !ok {
		return fmt.Errorf("the root group's schemata has no %s line", dir)
	}
	rdt.L3, rdt.L3CBM, rdt.L3MinBits, rdt.L3IDs = true, cbm, int(minBits), line.ids()
	rdt.Closids = int(closids)
	return nil
}

// mbInfo reads info/MB. The unit is nowhere in words: mba_MBps is a mount option; else only AMD has a bandwidth that is
// not delay_linear (arch/x86/kernel/cpu/resctrl/core.c, __rdt_get_mem_config_amd), and only its values pass 100.
func (fs FS) mbInfo(rdt *node.RDT, ids Schemata, mountOptions []string) error {
	if !fs.has("MB") {
		return nil
	}
	low, err := fs.infoInt("MB", "min_bandwidth")
	if err != nil {
		return err
	}
	gran, err := fs.infoInt("MB", "bandwidth_gran")
	if err != nil {
		return err
	}
	linear, err := fs.infoInt("MB", "delay_linear")
	if err != nil {
		return err
	}
	closids, err := fs.infoInt("MB", "num_closids")
	if err != nil {
		return err
	}
	line, ok := ids.Line("MB")
	if !ok {
		return errors.New("the root group's schemata has no MB line")
	}
	rdt.MB, rdt.MBMin, rdt.MBGran, rdt.MBIDs = true, low, gran, line.ids()
	top := line.largest()
	switch {
	case slices.Contains(mountOptions, "mba_MBps") || top == mbpsMax:
		rdt.MBUnit, rdt.MBMax = node.MBMBps, mbpsMax
	case linear == 0 || top > percentMax:
		rdt.MBUnit, rdt.MBMax = node.MBAbsolute, max(top, absoluteMax)
	default:
		rdt.MBUnit, rdt.MBMax = node.MBPercent, percentMax
	}
	// One group takes one class of service of every resource, so the smallest number bounds them all.
	if rdt.Closids == 0 || int(closids) < rdt.Closids {
		rdt.Closids = int(closids)
	}
	return nil
}

// monInfo reads info/L3_MON.
func (fs FS) monInfo(rdt *node.RDT) error {
	if !fs.has("L3_MON") {
		return nil
	}
	n, err := fs.infoInt("L3_MON", "num_rmids")
	if err != nil {
		return err
	}
	features, err := fs.infoText("L3_MON", "mon_features")
	if err != nil {
		return err
	}
	rdt.Mon = n > 0 && features != ""
	return nil
}

func (fs FS) has(resource string) bool {
	_, err := root.Inode(filepath.Join(string(fs), "info", resource))
	return err == nil
}

func (fs FS) infoText(resource, file string) (string, error) {
	s, err := root.Read(filepath.Join(string(fs), "info", resource, file))
	return strings.TrimSpace(s), err
}

func (fs FS) infoInt(resource, file string) (int64, error) {
	s, err := fs.infoText(resource, file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse info/%s/%s: %w", resource, file, err)
	}
	return n, nil
}

// infoMask reads a hexadecimal mask.
func (fs FS) infoMask(resource, file string) (uint64, error) {
	s, err := fs.infoText(resource, file)
	if err != nil {
		return 0, err
	}
	mask, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("parse info/%s/%s: %w", resource, file, err)
	}
	return mask, nil
}

func (l Line) ids() []int {
	ids := make([]int, len(l.Entries))
	for i, e := range l.Entries {
		ids[i] = e.ID
	}
	return ids
}

// largest is the largest decimal value of the line, 0 when there is none.
func (l Line) largest() int64 {
	var top int64
	for _, e := range l.Entries {
		if n, err := strconv.ParseInt(e.Value, 10, 64); err == nil {
			top = max(top, n)
		}
	}
	return top
}
