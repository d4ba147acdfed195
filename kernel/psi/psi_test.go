// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package psi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want Stat
		bad  bool
	}{
		"both lines": {"some avg10=0.12 avg60=12.05 avg300=100.00 total=43211\nfull avg10=0.00 avg60=0.00 avg300=0.01 total=1099\n",
			Stat{Some: Line{12, 43211}, Full: Line{0, 1099}, HasFull: true}, false},
		"cpu before 5.13": {"some avg10=1.00 avg60=0.00 avg300=0.00 total=5", Stat{Some: Line{Avg10: 100, TotalUS: 5}}, false},
		"irq":             {"full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n", Stat{Full: Line{TotalUS: 7}, HasFull: true}, false},
		"more than known": {"some avg5=x total=5 more=1\nother a=b\n", Stat{Some: Line{TotalUS: 5}}, false},
		"empty":           {"", Stat{}, true},
		"no total":        {"some avg10=0.12\n", Stat{}, true},
		"no number":       {"some avg10=0.12 total=x\n", Stat{}, true},
		"no percentage":   {"some avg10=0 total=1\n", Stat{}, true},
		"second line bad": {"some total=5\nfull total=\n", Stat{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got Stat
			err := Parse([]byte(c.in), &got)
			if (err != nil) != c.bad {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	text := []byte("some avg10=0.12 avg60=12.05 avg300=100.00 total=43211\nfull avg10=0.00 avg60=0.00 avg300=0.01 total=1099\n")
	var s Stat
	if n := testing.AllocsPerRun(100, func() {
		if Parse(text, &s) != nil {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("some avg10=0.12 avg60=12.05 avg300=100.00 total=43211\nfull avg10=0.00 avg60=0.00 avg300=0.01 total=1099\n")
	f.Add("full total=18446744073709551616")
	f.Fuzz(func(t *testing.T, text string) {
		before := Stat{HasFull: true, Some: Line{TotalUS: 1}}
		got := before
		if err := Parse([]byte(text), &got); err != nil && got != before {
			t.Errorf("half a result of %q: %+v", text, got)
		}
	})
}
