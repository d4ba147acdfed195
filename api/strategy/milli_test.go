// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
)

func TestParseMilli(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"0": 0, "1": 1000, "500m": 500, "1500m": 1500, "0.5": 500, "2.0005": 2001, "1u": 1, "100n": 1, "4k": 4_000_000,
		"1Ki": 1_024_000, "1e3": 1_000_000, "+2": 2000, "9223372036854775807m": 9223372036854775807,
	} {
		if got, err := strategy.ParseMilli(in); err != nil || got != want {
			t.Errorf("%s: %d %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "m", "-1", "1mm", "half", "9223372036854775807", "8E"} {
		if got, err := strategy.ParseMilli(in); !errors.Is(err, strategy.ErrQuantity) {
			t.Errorf("%q: %d %v, want an error", in, got, err)
		}
	}
}

// FuzzParseMilli: thousandths and whole numbers agree up to rounding.
func FuzzParseMilli(f *testing.F) {
	for _, s := range []string{"1", "1500m", "2Gi", "0.0001", "1e-3", "9223372036854775807m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		milli, err := strategy.ParseMilli(s)
		whole, wholeErr := strategy.ParseQuantity(s)
		if err != nil {
			if wholeErr == nil && whole < 1<<53 {
				t.Fatalf("%q is %d, but no quantity in thousandths: %v", s, whole, err)
			}
			return
		}
		if wholeErr != nil || milli < 0 || whole != milli/1000+min(milli%1000, 1) {
			t.Fatalf("%q: %d thousandths, %d (%v)", s, milli, whole, wholeErr)
		}
		if again, err := strategy.ParseMilli(strconv.FormatInt(milli, 10) + "m"); err != nil || again != milli {
			t.Fatalf("%dm reads as %d (%v)", milli, again, err)
		}
	})
}
