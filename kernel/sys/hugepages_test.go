// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHugePages(t *testing.T) {
	t.Parallel()
	const dir = "devices/system/node/node0/hugepages/"
	for name, c := range map[string]struct {
		files map[string]string
		want  []HugePages
		fails bool
	}{
		"two sizes": {
			map[string]string{"hugepages-1048576kB/nr_hugepages": "3\n", "hugepages-2048kB/nr_hugepages": "512\n", "hugepages-2048kB/free_hugepages": "x"},
			[]HugePages{{2 << 20, 1 << 30}, {1 << 30, 3 << 30}}, false,
		},
		"none set apart":   {map[string]string{"hugepages-2048kB/nr_hugepages": "0\n"}, []HugePages{{2 << 20, 0}}, false},
		"something else":   {map[string]string{"hugepages-big/nr_hugepages": "9\n", "other": "1"}, nil, false},
		"no huge pages":    {nil, nil, false},
		"no number":        {map[string]string{"hugepages-2048kB/nr_hugepages": "many\n"}, nil, true},
		"negative":         {map[string]string{"hugepages-2048kB/nr_hugepages": "-1\n"}, nil, true},
		"more than can be": {map[string]string{"hugepages-1048576kB/nr_hugepages": "9223372036854775807\n"}, nil, true},
		"no file":          {map[string]string{"hugepages-2048kB/free_hugepages": "0\n"}, nil, true},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := FS(root).HugePages(0)
		if d := cmp.Diff(c.want, got); d != "" || (err != nil) != c.fails {
			t.Errorf("%s: %v %s", name, err, d)
		}
	}
}

// TestThisHostsHugePages: what is set apart fits into the node.
func TestThisHostsHugePages(t *testing.T) {
	t.Parallel()
	got, err := FS("/sys").HugePages(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range got {
		if h.Size < 1<<16 || h.Size&(h.Size-1) != 0 || h.Total%h.Size != 0 || h.Total > 1<<50 {
			t.Errorf("%+v", h)
		}
	}
}

func FuzzHugePageDir(f *testing.F) {
	f.Add("hugepages-2048kB")
	f.Add("hugepages-1048576kB")
	f.Add("hugepages--1kB")
	f.Fuzz(func(t *testing.T, name string) {
		if size, ok := parseHugePageDir(name); ok && (size <= 0 || size%1024 != 0) {
			t.Errorf("%q is %d bytes", name, size)
		}
	})
}
