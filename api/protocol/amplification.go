// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"fmt"
	"math"
)

// AnnotationAmplifiedBy on a Node is by how much its status.allocatable is amplified now, in the form of
// [AnnotationAmplificationRatio]: that one is a wish which anybody may have changed since.
const AnnotationAmplifiedBy = "koord-rt.dev/amplified-by"

// MaxAmplification keeps a slip of the pen from telling a node to be a thousand.
const MaxAmplification = 100

// ParseAmplification reads node.koordinator.sh/resource-amplification-ratio, {"cpu":1.5,"memory":1.05}, in hundredths, by name
// of the resource. An empty text is none.
func ParseAmplification(s string) (hundredths map[string]int64, err error) {
	if s == "" {
		return nil, nil
	}
	var wire map[string]float64
	if err := decode(s, &wire); err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(wire) {
		r := wire[name]
		if !(r >= 1 && r <= MaxAmplification) {
			return nil, fmt.Errorf("ratio %v of %s, want 1 to %d", r, quote(name), MaxAmplification)
		}
		if hundredths == nil {
			hundredths = make(map[string]int64, len(wire))
		}
		hundredths[name] = int64(math.Round(r * 100))
	}
	return hundredths, nil
}
