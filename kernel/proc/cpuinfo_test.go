// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const xeon = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\nmodel name\t: Intel(R) Xeon(R) Platinum 8369B CPU @ 2.70GHz\n" +
	"flags\t\t: fpu ht\npower management:\n\nprocessor\t: 1\nvendor_id\t: Other\nmodel name\t: Other\n"

func TestCPUInfo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		want CPUInfo
	}{
		"x86":     {xeon, CPUInfo{"Intel(R) Xeon(R) Platinum 8369B CPU @ 2.70GHz", "GenuineIntel"}},
		"arm64":   {"processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", CPUInfo{"", "0x41"}},
		"nothing": {"", CPUInfo{}},
	} {
		if err := os.WriteFile(filepath.Join(dir, "cpuinfo"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := FS(dir).CPUInfo(); got != c.want || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := FS(t.TempDir()).CPUInfo(); err == nil {
		t.Error("no file is no error")
	}
}

func FuzzCPUInfo(f *testing.F) {
	f.Add([]byte(xeon))
	f.Add([]byte("model name:\n:x\nvendor_id"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := parseCPUInfo(b)
		if strings.ContainsRune(got.Model+got.Vendor, '\n') || strings.TrimSpace(got.Model) != got.Model {
			t.Fatalf("%+v", got)
		}
	})
}
