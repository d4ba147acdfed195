// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package unit_test

import (
	"math"
	"testing"

	"github.com/koord-rt/koord-rt/model/unit"
)

func TestMeasured(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		v    float64
		want unit.Measured[unit.Fraction]
	}{
		"a figure":     {0.5, unit.Measured[unit.Fraction]{V: 0.5, OK: true}},
		"nothing used": {0, unit.Measured[unit.Fraction]{OK: true}},
		"no number":    {math.NaN(), unit.Measured[unit.Fraction]{}},
		"infinite":     {math.Inf(-1), unit.Measured[unit.Fraction]{}},
	} {
		if got := unit.Got(unit.Fraction(tc.v)); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestPartsAndPercents(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ got, want float64 }{
		"part":              {float64(unit.Part[unit.MilliCPU](5000, 10000)), 0.5},
		"part of nothing":   {float64(unit.Part[unit.Bytes](5, 0)), 0},
		"part of less":      {float64(unit.Part[unit.Bytes](5, -1)), 0},
		"percent":           {float64(unit.Percent(65).Fraction()), 0.65},
		"65% of 128 CPUs":   {float64(unit.Percent(65).Milli(128000)), 83200},
		"no percent":        {float64(unit.Percent(0).Milli(128000)), 0},
		"percent of less":   {float64(unit.Percent(65).Milli(-1)), 0},
		"percent saturates": {float64(unit.Percent(200).Milli(math.MaxInt64)), math.MaxInt64},
		"raised":            {float64(unit.Fraction(1.2).Raise(200001)), 240001},
		"not raised":        {float64(unit.Fraction(0.5).Raise(200000)), 200000},
		"raised by nothing": {float64(unit.Fraction(math.NaN()).Raise(200000)), 200000},
		"unlimited":         {float64(unit.Fraction(2).Raise(unit.Unlimited)), -1},
		"too much to raise": {float64(unit.Fraction(1e300).Raise(200000)), 200000},
		"seconds":           {(1500 * unit.Millisecond).Seconds(), 1.5},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got %v, want %v", name, tc.got, tc.want)
		}
	}
}
