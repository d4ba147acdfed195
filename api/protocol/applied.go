// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

// ParseApplied reads the applied annotation. It is ours, but lies on the container where others can write, so it is
// bounded like every other.
func ParseApplied(s string) (Applied, error) {
	var out Applied
	if err := decode(s, &out); err != nil {
		return Applied{}, err
	}
	if err := checkName(out.By, true); err != nil {
		return Applied{}, err
	}
	for _, knob := range sortedKeys(out.Set) {
		if err := checkName(knob, false); err != nil {
			return Applied{}, err
		}
	}
	if len(out.Set) == 0 {
		out.Set = nil
	}
	if len(out.Base) == 0 {
		out.Base = nil
	}
	return out, nil
}

// FormatApplied writes what [ParseApplied] reads: compact JSON, knobs sorted, no time, so that equal changes give equal
// text.
func FormatApplied(a Applied) string { return encode(a) }
