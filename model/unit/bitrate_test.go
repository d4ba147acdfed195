// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package unit_test

import (
	"math"
	"testing"

	"github.com/koord-rt/koord-rt/model/unit"
)

func TestBitRate(t *testing.T) {
	t.Parallel()
	if unit.Gigabit.BytesPerSecond() != 125_000_000 || unit.BitRate(-1).BytesPerSecond() != 0 || unit.BitsOf(125_000_000) != unit.Gigabit {
		t.Error("a byte has eight bits")
	}
	if r := unit.BitRate(1_000_007).Whole(); r != 1_000_000 || unit.BitsOf(r.BytesPerSecond()) != r {
		t.Errorf("%d", r)
	}
	if unit.BitsOf(math.MaxUint64) <= 0 {
		t.Error("overflow")
	}
	for _, tc := range []struct {
		of   unit.BitRate
		p    int64
		want unit.BitRate
	}{{unit.Gigabit, 40, 400_000_000}, {99, 50, 49}, {unit.Gigabit, -1, 0}, {unit.Gigabit, 101, unit.Gigabit}, {math.MaxInt64, 100, math.MaxInt64}} {
		if got := tc.of.Percent(tc.p); got != tc.want {
			t.Errorf("%d%% of %d: %d, want %d", tc.p, tc.of, got, tc.want)
		}
	}
}
