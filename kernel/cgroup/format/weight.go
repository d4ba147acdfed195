// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package format

import "github.com/koord-rt/koord-rt/model/unit"

// SharesOf is the smallest shares that the formula turns into the weight; 0 for weight 0, which the kernel shows while
// cpu.idle is 1 (before Linux 6.12). Both formulas grow by at most one weight per share, so the way back is exact:
// w.Weight(SharesOf(x, w)) == x for every weight.
func SharesOf(weight unit.Weight, w unit.WeightFormula) unit.Shares {
	if weight <= 0 {
		return 0
	}
	lo, hi := unit.MinShares, unit.MaxShares
	for lo < hi {
		mid := lo + (hi-lo)/2
		if w.Weight(mid) >= weight {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
