// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import (
	"fmt"
	"math/big"
	"strings"
)

// Quantity is a Kubernetes quantity as written: 500m, 1.5, 200Mi, 1e3, 2G.
type Quantity string

// UnmarshalJSON takes strings and bare numbers.
func (q *Quantity) UnmarshalJSON(b []byte) error {
	*q = Quantity(strings.Trim(string(b), `"`))
	return nil
}

// suffixes of a quantity, the longer first.
func suffixes() []struct {
	text     string
	num, den int64
} {
	return []struct {
		text     string
		num, den int64
	}{
		{"Ki", 1 << 10, 1}, {"Mi", 1 << 20, 1}, {"Gi", 1 << 30, 1}, {"Ti", 1 << 40, 1}, {"Pi", 1 << 50, 1}, {"Ei", 1 << 60, 1},
		{"n", 1, 1e9}, {"u", 1, 1e6}, {"m", 1, 1e3},
		{"k", 1e3, 1}, {"M", 1e6, 1}, {"G", 1e9, 1}, {"T", 1e12, 1}, {"P", 1e15, 1}, {"E", 1e18, 1},
	}
}

// Milli is the quantity in thousandths, rounded up as Kubernetes does: "500m" is 500,
// "1" is 1000.
func (q Quantity) Milli() (int64, error) { return q.scaled(1000) }

// Value is the quantity in units, rounded up: "500m" is 1, "1Ki" is 1024.
func (q Quantity) Value() (int64, error) { return q.scaled(1) }

func (q Quantity) scaled(factor int64) (int64, error) {
	text, r := string(q), big.NewRat(factor, 1)
	for _, s := range suffixes() {
		if rest, ok := strings.CutSuffix(text, s.text); ok {
			text = rest
			r.Mul(r, big.NewRat(s.num, s.den))
			break
		}
	}
	// Only digits, a sign, a point and a decimal exponent: big.Rat reads more than that.
	if strings.Trim(text, "+-.0123456789eE") != "" || len(text) > 40 {
		return 0, fmt.Errorf("parse quantity %q: not a number with a Kubernetes suffix", string(q))
	}
	n, ok := new(big.Rat).SetString(text)
	if !ok || n.Sign() < 0 {
		return 0, fmt.Errorf("parse quantity %q: not a number with a Kubernetes suffix, or negative", string(q))
	}
	r.Mul(r, n)
	up := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	up.Quo(up, r.Denom())
	if !up.IsInt64() {
		return 0, fmt.Errorf("parse quantity %q: out of range", string(q))
	}
	return up.Int64(), nil
}
