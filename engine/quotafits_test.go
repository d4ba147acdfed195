// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/koord-rt/koord-rt/model/workload"
)

// TestQuotaFits: what a child below a limited parent may ask for on cgroup v1, as the kernel decides it.
func TestQuotaFits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		parent string
		quota  int64
		want   bool
	}{
		{"50000", 50000, true}, {"50000", 60000, false}, {"50000", -1, true}, {"-1", 60000, true}, {"", 60000, true},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "pod"), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"cpu.cfs_quota_us": c.parent, "cpu.cfs_period_us": "100000"} {
			if err := os.WriteFile(filepath.Join(dir, "pod", file), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l := &Live{CPUDir: dir}
		if got := l.quotaFits(&workload.Container{Cgroup: "/pod/new"}, nil, c.quota); got != c.want {
			t.Errorf("%d below %q fits: %t, want %t", c.quota, c.parent, got, c.want)
		}
	}
}
