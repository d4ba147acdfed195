// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package probe

import "github.com/koord-rt/koord-rt/model/unit"

// DetectFormula finds the formula by which a writer turned shares into the cpu.weight that stands in the kernel. It is
// false when both give this weight (2 and 262144 shares, and a few between) or none does.
func DetectFormula(shares unit.Shares, weight unit.Weight) (unit.WeightFormula, bool) {
	linear, quadratic := unit.Linear.Weight(shares), unit.Quadratic.Weight(shares)
	switch {
	case linear == quadratic || weight == 0:
		return unit.Linear, false
	case weight == linear:
		return unit.Linear, true
	case weight == quadratic:
		return unit.Quadratic, true
	}
	return unit.Linear, false
}
