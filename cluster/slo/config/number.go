// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"math"
	"strconv"
)

// Number is a fraction as JSON writes it.
type Number float64

// UnmarshalJSON accepts a JSON number only.
func (n *Number) UnmarshalJSON(data []byte) error {
	v, err := strconv.ParseFloat(string(data), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return errors.New("want a number such as 0.1")
	}
	*n = Number(v)
	return nil
}
