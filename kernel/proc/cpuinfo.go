// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// maxCPUInfo is what is read of /proc/cpuinfo: the first processor's entry is some 2 KiB.
const maxCPUInfo = 16 << 10

// CPUInfo is what /proc/cpuinfo tells of the machine's processors, by the first of them; empty what it does not tell.
type CPUInfo struct{ Model, Vendor string }

// CPUInfo reads the beginning of /proc/cpuinfo.
func (fs FS) CPUInfo() (CPUInfo, error) {
	f, err := os.Open(fs.Path("cpuinfo"))
	if err != nil {
		return CPUInfo{}, fmt.Errorf("read the processor's model: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCPUInfo))
	if err != nil {
		return CPUInfo{}, fmt.Errorf("read the processor's model: %w", err)
	}
	return parseCPUInfo(b), nil
}

// parseCPUInfo reads the first of each key (arch/x86/kernel/cpu/proc.c):
//
//	vendor_id	: GenuineIntel
//	model name	: Intel(R) Xeon(R) Platinum 8369B CPU @ 2.70GHz
//
// arm64 has no model name; its "CPU implementer" is the vendor (arch/arm64/kernel/cpuinfo.c).
func parseCPUInfo(b []byte) (out CPUInfo) {
	for line := range strings.Lines(string(b)) {
		key, value, ok := strings.Cut(line, ":")
		if value = strings.TrimSpace(value); !ok || value == "" {
			continue
		}
		switch strings.TrimSpace(key) {
		case "model name":
			if out.Model == "" {
				out.Model = value
			}
		case "vendor_id", "CPU implementer":
			if out.Vendor == "" {
				out.Vendor = value
			}
		}
	}
	return out
}
