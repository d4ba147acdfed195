// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package format_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/kernel/cgroup/format"
	"github.com/koord-rt/koord-rt/model/unit"
)

func TestInt(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{"max": -1, "max\n": -1, "-1": -1, "9223372036854771712": -1, "9223372036854759424": -1, "9223372036854710272": -1, "9223372036854644736": 9223372036854644736, "9223372036854775807": -1, " 4096\n": 4096, "0": 0} {
		if got, err := format.Int([]byte(in)); got != want || err != nil {
			t.Errorf("Int(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "a", "1 2", "99999999999999999999", "0x10"} {
		if got, err := format.Int([]byte(in)); !errors.Is(err, format.ErrFormat) {
			t.Errorf("Int(%q) = %d, %v; want an error", in, got, err)
		}
	}
}

func TestKeyedFiles(t *testing.T) {
	t.Parallel()
	ioMax := []byte("8:16 rbps=2097152 wbps=max riops=max wiops=120\n8:1 rbps=5 wbps=6 riops=7 wiops=8\n")
	for _, tt := range []struct {
		device, field string
		want          int64
	}{{"8:16", "rbps", 2097152}, {"8:16", "wbps", -1}, {"8:16", "wiops", 120}, {"8:1", "riops", 7}, {"8:0", "rbps", -1}, {"8:1", "other", -1}} {
		if got, err := format.IOMax(ioMax, tt.device, tt.field); got != tt.want || err != nil {
			t.Errorf("IOMax(%s %s) = %d, %v; want %d", tt.device, tt.field, got, err, tt.want)
		}
	}
	weights := []byte("default 100\n8:0 50\n8:16 default")
	for device, want := range map[string]int64{"": 100, "8:0": 50, "8:16": 100, "8:32": 100} {
		if got, err := format.Weights(weights, device); got != want || err != nil {
			t.Errorf("Weights(%q) = %d, %v; want %d", device, got, err, want)
		}
	}
	if got, err := format.Weights([]byte("70"), "8:0"); got != 70 || err != nil {
		t.Errorf("a lone weight = %d, %v", got, err)
	}
	if _, err := format.Weights(nil, ""); !errors.Is(err, format.ErrFormat) {
		t.Errorf("empty weights: %v", err)
	}
	if got, err := format.Latency([]byte("8:0 target=75000\n"), "8:0"); got != 75000 || err != nil {
		t.Errorf("Latency = %d, %v", got, err)
	}
	if got, err := format.Throttle([]byte("8:0 1048576\n"), "8:0"); got != 1048576 || err != nil {
		t.Errorf("Throttle = %d, %v", got, err)
	}
	if got, err := format.Throttle(nil, "8:0"); got != -1 || err != nil {
		t.Errorf("no throttle = %d, %v", got, err)
	}
}

func TestSharesOfIsExact(t *testing.T) {
	t.Parallel()
	for _, f := range []unit.WeightFormula{unit.Linear, unit.Quadratic} {
		for w := unit.MinWeight; w <= unit.MaxWeight; w++ {
			s := format.SharesOf(w, f)
			if got := f.Weight(s); got != w {
				t.Fatalf("%s: weight %d came back as %d by shares %d", f, w, got, s)
			}
		}
	}
	if got := format.SharesOf(0, unit.Linear); got != 0 {
		t.Errorf("weight 0 (idle) gave %d", got)
	}
}

func TestSameList(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want bool
	}{{"0-3", "0-3", true}, {"0,1,2,3", "0-3", true}, {"", "", true}, {"", "0", false}, {"0-3", "0-2", false}, {"x", "0", false}, {"0", "x", false}} {
		if got := format.SameList(tt.a, []byte(tt.b)); got != tt.want {
			t.Errorf("SameList(%q, %q) = %v", tt.a, tt.b, got)
		}
	}
}

// A line is walked through once: by a walk from its start for each word this test would last for hours.
func TestPairOfManyWords(t *testing.T) {
	t.Parallel()
	line := []byte(strings.Repeat("a ", 1<<20) + "rbps=7")
	if got, ok := format.Pair(line, "rbps"); !ok || string(got) != "7" {
		t.Errorf("Pair = %.20q, %v", got, ok)
	}
	if got, ok := format.Pair(line, "wbps"); ok {
		t.Errorf("Pair of a name that is not there = %.20q", got)
	}
}

// FuzzParsers: no content makes a parser panic, and numbers that are accepted are at least -1 where -1 is "no limit".
func FuzzParsers(f *testing.F) {
	f.Add([]byte("8:0 rbps=1 wbps=max\n8:16 target=5\ndefault 100"), "8:0")
	f.Add([]byte("max 100000"), "rbps")
	f.Add([]byte("9223372036854771712\n"), "")
	f.Add([]byte("8:0 "+strings.Repeat("a ", 1<<15)), "8:0")
	f.Fuzz(func(t *testing.T, raw []byte, key string) {
		for i := range 4 {
			if w := format.Word(raw, i); w != nil && len(w) == 0 {
				t.Fatalf("empty word %d of %q", i, raw)
			}
		}
		if line, ok := format.Line(raw, key); ok && len(line) > len(raw) {
			t.Fatalf("line %q longer than %q", line, raw)
		}
		if n, err := format.Latency(raw, key); err == nil && n < 0 {
			t.Fatalf("latency %d of %q", n, raw)
		}
		if n, err := format.Throttle(raw, key); err == nil && (n < -1 || n == 0) {
			t.Fatalf("throttle %d of %q", n, raw)
		}
		_, _ = format.Int(raw)
		_, _ = format.IOMax(raw, key, "rbps")
		_, _ = format.Weights(raw, key)
		if format.SameList(key, raw) != format.SameList(string(raw), []byte(key)) {
			t.Fatalf("SameList is not symmetric for %q and %q", key, raw)
		}
	})
}
