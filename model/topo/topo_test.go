// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package topo

import (
	"errors"
	"slices"
	"testing"
)

func TestParseCPUSet(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":              "",
		"0":             "0",
		"0-3,8":         "0-3,8",
		"8,0-3":         "0-3,8",
		"0,1,2":         "0-2",
		" 0-1\n":        "0-1",
		"63-64,127,128": "63-64,127-128",
		"8191":          "8191",
		"0-8191":        "0-8191",
		"0-4095,0-4095": "0-4095",
	} {
		got, err := ParseCPUSet(in)
		if err != nil || got.String() != want {
			t.Errorf("%q: got %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"x", "-1", "3-1", "0-4294967295", "8192", "1,", ",", "1-", "0x3", "1--2", "99999999999999999999999999", "0-8191,0", "0-4095,1-4097"} {
		if got, err := ParseCPUSet(in); !errors.Is(err, ErrCPUList) || !got.Empty() {
			t.Errorf("%q: got %q, %v; want an error and nothing", in, got, err)
		}
	}
}

func TestRangesOverWords(t *testing.T) {
	t.Parallel()
	edges := []int{-70, -1, 0, 1, 62, 63, 64, 65, 127, 128, 191, 192, MaxCPU - 1, MaxCPU, MaxCPU + 1, 2 * MaxCPU}
	for _, lo := range edges {
		for _, hi := range edges {
			var want []int
			for id := max(lo, 0); id <= min(hi, MaxCPU); id++ {
				want = append(want, id)
			}
			if got := Range(lo, hi); !slices.Equal(got.List(), want) || !got.Equal(CPUs(want...)) {
				t.Errorf("%d..%d is %s", lo, hi, got)
			}
		}
	}
}

func TestRangeAllocatesOnce(t *testing.T) { // it counts for the whole process, so it runs alone
	for name, f := range map[string]func(){"Range": func() { Range(0, MaxCPU) }, "ParseCPUSet": func() { _, _ = ParseCPUSet("0-8191") }} {
		if n := testing.AllocsPerRun(10, f); n > 2 { // the race detector has what is appended made by itself
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestSetAlgebra(t *testing.T) {
	t.Parallel()
	a, b := Range(0, 3), CPUs(2, 3, 70)
	for name, c := range map[string]struct{ got, want string }{
		"union":         {a.Union(b).String(), "0-3,70"},
		"minus":         {a.Minus(b).String(), "0-1"},
		"minus longer":  {b.Minus(a).String(), "70"},
		"intersect":     {a.Intersect(b).String(), "2-3"},
		"outside range": {CPUs(-1, MaxCPU+1).String(), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", name, c.got, c.want)
		}
	}
	if a.Equal(b) || !a.Equal(Range(0, 3)) || !CPUs(1).SubsetOf(a) || b.SubsetOf(a) || !a.Overlaps(b) || a.Overlaps(CPUs(9)) {
		t.Error("comparison is wrong")
	}
	if !a.Equal(a.Union(CPUs(200)).Minus(CPUs(200))) {
		t.Error("sets with unequal storage and equal members are not Equal")
	}
	if !slices.Equal(b.List(), []int{2, 3, 70}) || b.Len() != 3 {
		t.Errorf("list %v, len %d", b.List(), b.Len())
	}
}

func TestTopology(t *testing.T) {
	t.Parallel()
	var cpus []CPU
	for i := range 8 {
		cpus = append(cpus, CPU{ID: 7 - i, Core: (7 - i) / 2, Socket: (7 - i) / 4, Node: (7 - i) / 4})
	}
	tp := New(cpus, CPUs(0, 1))
	if tp.All().String() != "0-7" || tp.NodeCPUs(1).String() != "4-7" || !tp.NodeCPUs(9).Empty() {
		t.Errorf("all %s, node 1 %s", tp.All(), tp.NodeCPUs(1))
	}
	if got := tp.NodesOf(CPUs(1, 5)).String(); got != "0-1" {
		t.Errorf("nodes of 1,5: %s", got)
	}
	if !tp.SMT() {
		t.Error("two threads a core are SMT")
	}
	if got := New(cpus, CPUs(0)).NodesOf(CPUs(5)); !got.Empty() {
		t.Errorf("a node without memory is no mem: %s", got)
	}
}

func FuzzParseCPUSet(f *testing.F) {
	for _, s := range []string{"0-3,8", "", "0-4294967295", "1,,2", "7-3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseCPUSet(s)
		if err != nil {
			if !a.Empty() {
				t.Errorf("%q: an error and %s", s, a)
			}
			return
		}
		b, err := ParseCPUSet(a.String())
		if err != nil || !a.Equal(b) {
			t.Errorf("%q: %s does not read back: %s, %v", s, a, b, err)
		}
		var c CPUSet
		if err := c.UnmarshalText([]byte(s)); err != nil || !a.Equal(c) {
			t.Errorf("%q as text: %s, %v, want %s", s, c, err, a)
		}
	})
}
