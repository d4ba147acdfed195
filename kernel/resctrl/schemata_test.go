// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package resctrl

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

func TestParseSchemata(t *testing.T) {
	t.Parallel()
	s, err := ParseSchemata("    MB:0=100;1= 50\n    L3:0=0ff;8=fffff\nSMBA:0=2048\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := "MB:0=100;1=50\nL3:0=0ff;8=fffff\nSMBA:0=2048\n"; s.String() != want {
		t.Errorf("got %q", s)
	}
	l, ok := s.Line("L3")
	if v, has := l.Get(8); !ok || !has || v != "fffff" {
		t.Errorf("L3 of 8 is %q", v)
	}
}

func TestParseSchemataKeepsGoodLines(t *testing.T) {
	t.Parallel()
	s, err := ParseSchemata("L3:0=ff\nrubbish\nMB:0=10;0=20\nL2:a=1\nMB:0=\n")
	if !errors.Is(err, ErrSchemata) || s.String() != "L3:0=ff\n" {
		t.Errorf("got %q, %v", s, err)
	}
}

// More ids than a machine can have CPUs are an error, since each is looked for among the others.
func TestParseLineOfManyIDs(t *testing.T) {
	t.Parallel()
	parts := make([]string, maxIDs)
	for id := range parts {
		parts[id] = strconv.Itoa(id) + "=f"
	}
	line := "L3:" + strings.Join(parts, ";")
	if l, err := ParseLine(line); err != nil || len(l.Entries) != maxIDs {
		t.Errorf("%d ids, %v", len(l.Entries), err)
	}
	if _, err := ParseLine(line + ";9000=f"); !errors.Is(err, ErrSchemata) || !strings.Contains(err.Error(), "L3 has more than 8192 ids") {
		t.Errorf("one more: %v", err)
	}
}

func TestSameValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		resource, a, b string
		want           bool
	}{
		{"L3", "0ff", "ff", true},
		{"L3CODE", "0xff", "FF", true},
		{"L3", "ff", "f", false},
		{"MB", "010", "10", true},
		{"MB", "a", "10", false},
		{"NEW", "word", "word", true},
		{"NEW", "word", "other", false},
	} {
		if got := sameValue(c.resource, c.a, c.b); got != c.want {
			t.Errorf("sameValue(%s, %s, %s) = %v", c.resource, c.a, c.b, got)
		}
	}
}

func FuzzParseSchemata(f *testing.F) {
	f.Add("    MB:0=100;1=100\n    L3:0=fffff;1=fffff\n")
	f.Add("L3:0=ff;1")
	f.Add(":0=1")
	f.Add("MB:99999999999=1")
	f.Fuzz(func(t *testing.T, s string) {
		got, _ := ParseSchemata(s)
		again, err := ParseSchemata(got.String())
		if err != nil || again.String() != got.String() {
			t.Errorf("%q does not come back: %q, %v", got, again, err)
		}
	})
}

func TestValidName(t *testing.T) {
	t.Parallel()
	for _, ok := range []string{"BE", "koordlet-pod-1", "a.b", "..."} {
		if err := ValidName(ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "a/b", "/", "info", "mon_groups", "mon_data", "schemata", "tasks", "a\nb", "a\x00", strings.Repeat("x", 256)} {
		if err := ValidName(bad); !errors.Is(err, ErrName) {
			t.Errorf("%q is accepted: %v", bad, err)
		}
	}
}
