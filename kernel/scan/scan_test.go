// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package scan_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/scan"
)

func TestUint(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		n  uint64
		ok bool
	}{
		"0": {0, true}, "007": {7, true}, "9999999999999999999": {9999999999999999999, true},
		"18446744073709551615": {18446744073709551615, true}, "18446744073709551616": {}, "28446744073709551615": {},
		"00000000000000000000005": {5, true}, "": {}, "-1": {}, "1 ": {}, "1x": {}, "1000000000000000000x0": {},
	} {
		if n, ok := scan.Uint([]byte(in)); ok != want.ok || ok && n != want.n {
			t.Errorf("Uint(%q) = %d, %v", in, n, ok)
		}
	}
}

func TestHundredths(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		n  uint64
		ok bool
	}{
		"0.00": {0, true}, "12.34": {1234, true}, "100.00": {10000, true},
		"1": {}, ".50": {}, "1.5": {}, "1.500": {}, "1.-5": {}, "": {}, "99999999999999999.00": {},
	} {
		if n, ok := scan.Hundredths([]byte(in)); ok != want.ok || ok && n != want.n {
			t.Errorf("Hundredths(%q) = %d, %v", in, n, ok)
		}
	}
}

func TestLinesAndFields(t *testing.T) {
	t.Parallel()
	line, rest := scan.Line([]byte("  a\tb=c \nlast"))
	f1, tail := scan.Field(line)
	f2, tail := scan.Field(tail)
	f3, _ := scan.Field(tail)
	key, value := scan.Pair(f2)
	got := strings.Join([]string{string(f1), string(f2), string(f3), string(key), string(value), string(rest)}, "|")
	if want := "a|b=c||b|c|last"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if line, rest := scan.Line(rest); string(line) != "last" || rest != nil {
		t.Errorf("last line %q, %q", line, rest)
	}
	if n, rest, ok := scan.UintField([]byte(" 42 x")); n != 42 || !ok || string(rest) != " x" {
		t.Errorf("UintField: %d %q %v", n, rest, ok)
	}
	if key, value := scan.Pair([]byte("x")); string(key) != "x" || value != nil {
		t.Errorf("Pair without sign: %q %q", key, value)
	}
}

// TestAmounts counts allocations, so it is not parallel.
func TestAmounts(t *testing.T) {
	type amounts struct{ total, free int64 }
	for name, tc := range map[string]struct {
		text   string
		before int
		want   amounts
		bad    bool
	}{
		"of the machine":       {text: "MemTotal:       24684096 kB\nMemFree:        22626508 kB\nHugePages_Total:       0\n", want: amounts{24684096 << 10, 22626508 << 10}},
		"of a node":            {text: "Node 0 MemTotal:        6908120 kB\nNode 0 MemFree:  4850584 kB\n", before: 2, want: amounts{6908120 << 10, 4850584 << 10}},
		"the first alone":      {text: "MemTotal: 1 kB", want: amounts{1 << 10, 0}},
		"without the first":    {text: "MemFree: 1 kB\n", bad: true},
		"nothing":              {bad: true},
		"no number":            {text: "MemTotal: lots kB\n", bad: true},
		"no value":             {text: "MemTotal:\n", bad: true},
		"below zero":           {text: "MemTotal: -1 kB\n", bad: true},
		"a later one is wrong": {text: "MemTotal: 1 kB\nMemFree: x kB\n", bad: true},
		"the largest":          {text: "MemTotal: 1125899906842623 kB\n", want: amounts{1125899906842623 << 10, 0}},
		"eight would not fit":  {text: "MemTotal: 1125899906842624 kB\n", bad: true},
		"a key within another": {text: "MemTotal:x 1 kB\nXMemTotal: 2 kB\n", bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte(tc.text)
			var got amounts
			var err error
			if n := testing.AllocsPerRun(10, func() {
				got = amounts{}
				err = scan.Amounts(text, tc.before, []scan.Amount[int64]{{Key: "MemTotal:", To: &got.total}, {Key: "MemFree:", To: &got.free}})
			}); n != 0 {
				t.Errorf("%v allocations", n)
			}
			if (err != nil) != tc.bad || !tc.bad && got != tc.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// FuzzUint agrees with the standard library on everything that is digits only.
func FuzzUint(f *testing.F) {
	f.Add("18446744073709551615")
	f.Add("-1")
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := scan.Uint([]byte(s))
		want, err := strconv.ParseUint(s, 10, 64)
		if plus := strings.HasPrefix(s, "+"); ok != (err == nil && !plus) || ok && n != want {
			t.Errorf("Uint(%q) = %d, %v; the library says %d, %v", s, n, ok, want, err)
		}
	})
}
