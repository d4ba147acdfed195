// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/model/topo"
)

// TestHugePagesOfNodes: each node's own; a node without them has none, and a file that is none ends the look.
func TestHugePagesOfNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(text string) {
		path := filepath.Join(dir, "devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("8\n")
	got, err := hugePages(sys.FS(dir), topo.CPUs(0, 1))
	if d := cmp.Diff(map[int][]report.HugePages{1: {{Size: 2 << 20, Total: 16 << 20}}}, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	put("x\n")
	if got, err := hugePages(sys.FS(dir), topo.CPUs(0, 1)); err == nil {
		t.Errorf("%v", got)
	}
}
