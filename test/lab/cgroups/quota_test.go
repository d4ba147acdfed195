// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cgroups

import (
	"math"
	"testing"
)

func TestFilled(t *testing.T) {
	t.Parallel()
	none := math.Inf(1)
	for name, tc := range map[string]struct{ got, want float64 }{
		"once":                     {FilledOnce(0.02, 2), 0.07},
		"once, no quota":           {FilledOnce(none, 2), none},
		"cut":                      {Quota{Before: 0.12, Now: 0.02, Periods: 5, Growth: 0.02, CPUs: 2}.Filled(), 0.77},
		"cut, on one CPU more":     {Quota{Before: 0.12, Now: 0.02, Periods: 5, Growth: 0.02, CPUs: 3}.Filled(), 0.795},
		"grown":                    {Quota{Before: 0.02, Now: 0.04, Periods: 5, Growth: 0.02, CPUs: 2}.Filled(), 0.29},
		"as it was":                {Quota{Before: 0.02, Now: 0.02, Periods: 5, Growth: 0.02, CPUs: 2}.Filled(), 0.1},
		"as it was, half a period": {Quota{Before: 0.02, Now: 0.02, Periods: 0.5, Growth: 0.02, CPUs: 2}.Filled(), 0.01},
		"as it was, no period":     {Quota{Before: 0.02, Now: 0.02, Growth: 0.02, CPUs: 2}.Filled(), 0},
		"missed, as it was":        {Quota{Before: 0.02, Now: 0.02, Periods: 15, Missed: 2, Growth: 0.02, CPUs: 2}.Filled(), 1.12},
		"missed, cut":              {Quota{Before: 0.12, Now: 0.02, Periods: 15, Missed: 2, Growth: 0.02, CPUs: 2}.Filled(), 3.03},
		"no quota":                 {Quota{Before: none, Now: none, Periods: 5, CPUs: 2}.Filled(), none},
		"no quota before":          {Quota{Before: none, Now: 0.02, Periods: 5, CPUs: 2}.Filled(), none},
	} {
		if off := math.Abs(tc.got - tc.want); tc.got != tc.want && (off > 1e-9 || math.IsNaN(off)) {
			t.Errorf("%s: %v, want %v", name, tc.got, tc.want)
		}
	}
}
