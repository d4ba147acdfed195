// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package figure_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

func TestBitRate(t *testing.T) {
	t.Parallel()
	for rate, want := range map[unit.BitRate]string{
		0: "0 bit/s", 999: "999 bit/s", 64_000: "64 kbit/s", 2_500_000: "2.5 Mbit/s", 10 * unit.Gigabit: "10 Gbit/s", 1_500_000_000: "1.5 Gbit/s",
	} {
		if got := figure.BitRate(rate); got != want {
			t.Errorf("%d: %q, want %q", rate, got, want)
		}
	}
}
