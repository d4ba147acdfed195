// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package probe

import (
	"testing"

	"github.com/koord-rt/koord-rt/model/unit"
)

func FuzzDetectFormula(f *testing.F) {
	f.Add(int64(1024), int64(39))
	f.Add(int64(1024), int64(100))
	f.Add(int64(-1), int64(0))
	f.Fuzz(func(t *testing.T, shares, weight int64) {
		s := unit.Shares(shares)
		formula, known := DetectFormula(s, unit.Weight(weight))
		if known && (formula.Weight(s) != unit.Weight(weight) || unit.Linear.Weight(s) == unit.Quadratic.Weight(s)) {
			t.Fatalf("%d shares as weight %d are said to be by %v", shares, weight, formula)
		}
	})
}
