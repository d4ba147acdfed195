// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroups

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCPUTime(t *testing.T) {
	t.Parallel()
	v1, v2 := Tree{}, Tree{Unified: "/sys/fs/cgroup"}
	for name, tc := range map[string]struct {
		tree Tree
		file string
		text string
		want time.Duration
		err  string // a part of it
	}{
		"v1":               {v1, "cpuacct.usage", "1181457638986\n", 1181457638986 * time.Nanosecond, ""},
		"v1, nothing":      {v1, "cpuacct.usage", "", 0, "invalid syntax"},
		"v1, v2's file":    {v1, "cpu.stat", "usage_usec 5\n", 0, "cpuacct.usage: no such file"},
		"v2":               {v2, "cpu.stat", "usage_usec 81273411\nuser_usec 52841000\nsystem_usec 28432411\nnr_periods 7\n", 81273411 * time.Microsecond, ""},
		"v2, not first":    {v2, "cpu.stat", "user_usec 3\nusage_usec 5\n", 5 * time.Microsecond, ""},
		"v2, without it":   {v2, "cpu.stat", "user_usec 3\nsystem_usec 2\n", 0, "cpu.stat: no usage_usec"},
		"v2, not a number": {v2, "cpu.stat", "usage_usec x\n", 0, "invalid syntax"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, tc.file), []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := tc.tree.CPUTime(dir)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %s, %v; want %s, %q", name, got, err, tc.want, tc.err)
		}
	}
}

func TestIdleTime(t *testing.T) {
	t.Parallel()
	const stat = `cpu  81473 213 34563 75184 652 0 304 2844 0 0
cpu0 40917 213 16987 37988 193 0 20 1338 0 0
cpu1 40556 0 17576 37196 459 0 284 1506 0 0
intr 8885917 17 1 4 5 6
ctxt 22848
`
	for name, tc := range map[string]struct {
		text string
		cpus []int
		want time.Duration
		err  string // a part of it
	}{
		"none":         {stat, nil, 0, ""},
		"one":          {stat, []int{0}, 381810 * time.Millisecond, ""},
		"two":          {stat, []int{0, 1}, 758360 * time.Millisecond, ""},
		"named twice":  {stat, []int{1, 1}, 376550 * time.Millisecond, ""},
		"offline":      {stat, []int{3, 0, 2}, 0, "no figures of cpu2, cpu3"},
		"begins alike": {stat, []int{10}, 0, "no figures of cpu10"},
		"too short":    {"cpu0 1 2 3 4\n", []int{0}, 0, "no figures of cpu0"},
		"not a number": {"cpu0 1 2 3 4 x\n", []int{0}, 0, "invalid syntax"},
		"nothing":      {"", []int{0}, 0, "no figures of cpu0"},
	} {
		got, err := parseIdle(tc.text, tc.cpus)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %s, %v; want %s, %q", name, got, err, tc.want, tc.err)
		}
	}
}
