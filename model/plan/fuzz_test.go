// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plan

import "testing"

func FuzzParseKnob(f *testing.F) {
	for k := KnobNone; k < NumKnobs; k++ {
		f.Add(k.String())
	}
	f.Fuzz(func(t *testing.T, name string) {
		if k, ok := ParseKnob(name); ok != (k != KnobNone) || ok && k.String() != name {
			t.Fatalf("%q is %v, %t", name, k, ok)
		}
	})
}
