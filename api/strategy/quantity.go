// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// ErrQuantity is wrapped by every error of the quantity parsers.
var ErrQuantity = errors.New("bad quantity")

// maxQuantityLen bounds the text of a quantity; Kubernetes writes far less.
const maxQuantityLen = 64

// Quantity is a Kubernetes resource quantity as written: "2Gi", "1500m", "1k", "1e3". It is checked when decoded.
type Quantity string

// Value is the quantity rounded up to a whole number, as upstream's Quantity.Value does.
func (q Quantity) Value() (int64, error) { return ParseQuantity(string(q)) }

// UnmarshalJSON accepts a JSON string or number; negative, malformed and overflowing quantities are refused.
func (q *Quantity) UnmarshalJSON(data []byte) error {
	text := string(data)
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return fmt.Errorf("decode quantity: %w", err)
		}
	}
	if _, err := ParseQuantity(text); err != nil {
		return err
	}
	*q = Quantity(text)
	return nil
}

// IntOrString is a whole number (percent) or a quantity string (absolute).
type IntOrString struct {
	// IsString says which of the two is set.
	IsString bool
	Int      int64
	Str      string
}

// UnmarshalJSON accepts a JSON integer or a string with a quantity.
func (v *IntOrString) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return fmt.Errorf("decode quantity: %w", err)
		}
		if _, err := ParseQuantity(text); err != nil {
			return err
		}
		*v = IntOrString{IsString: true, Str: text}
		return nil
	}
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return fmt.Errorf("want a whole number (percent) or a quantity string: %w", ErrQuantity)
	}
	*v = IntOrString{Int: n}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (v IntOrString) MarshalJSON() ([]byte, error) {
	if v.IsString {
		return json.Marshal(v.Str)
	}
	return strconv.AppendInt(nil, v.Int, 10), nil
}

// suffixes are the factors of Kubernetes quantities; m, u and n divide.
var suffixes = map[string]struct {
	base     int64
	exponent int64
}{
	"": {10, 0}, "n": {10, -9}, "u": {10, -6}, "m": {10, -3}, "k": {10, 3}, "M": {10, 6}, "G": {10, 9}, "T": {10, 12},
	"P": {10, 15}, "E": {10, 18}, "Ki": {2, 10}, "Mi": {2, 20}, "Gi": {2, 30}, "Ti": {2, 40}, "Pi": {2, 50}, "Ei": {2, 60},
}

// ParseQuantity reads a non-negative Kubernetes quantity and rounds it up to a whole number: "1k" is 1000, "2Gi" is
// 2147483648, "1500m" is 2.
func ParseQuantity(text string) (int64, error) {
	if n, ok := plainDigits(text); ok {
		return n, nil
	}
	return scaled(text, 1)
}

// ParseMilli reads a non-negative Kubernetes quantity in thousandths, rounded up: "1" is 1000, "1500m" is 1500.
func ParseMilli(text string) (int64, error) {
	if n, ok := plainDigits(strings.TrimSuffix(text, "m")); ok && strings.HasSuffix(text, "m") {
		return n, nil
	}
	return scaled(text, 1000)
}

// scaled is a quantity times factor, rounded up.
func scaled(text string, factor int64) (int64, error) {
	if text == "" || len(text) > maxQuantityLen {
		return 0, fmt.Errorf("%w: length %d, want 1..%d", ErrQuantity, len(text), maxQuantityLen)
	}
	if text[0] == '-' {
		return 0, fmt.Errorf("%w %q: negative", ErrQuantity, text)
	}
	end := numberEnd(text)
	mantissa, ok := new(big.Rat).SetString(strings.TrimPrefix(text[:end], "+"))
	if !ok {
		return 0, fmt.Errorf("%w %q", ErrQuantity, text)
	}
	base, exponent, err := suffixOf(text[end:])
	if err != nil {
		return 0, fmt.Errorf("%w %q", err, text)
	}
	power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(base), big.NewInt(max(exponent, -exponent)), nil))
	if exponent < 0 {
		power.Inv(power)
	}
	mantissa.Mul(mantissa, power).Mul(mantissa, new(big.Rat).SetInt64(factor))
	whole, rest := new(big.Int).QuoRem(mantissa.Num(), mantissa.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if !whole.IsInt64() {
		return 0, fmt.Errorf("%w %q: overflows 64 bits", ErrQuantity, text)
	}
	return whole.Int64(), nil
}

// plainDigits is the fast path for "1000".
func plainDigits(text string) (int64, bool) {
	if text == "" || len(text) > 18 {
		return 0, false
	}
	var n int64
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(text[i]-'0')
	}
	return n, true
}

// numberEnd is the length of the leading [+]digits[.digits].
func numberEnd(text string) int {
	i := 0
	if text[0] == '+' {
		i++
	}
	for i < len(text) && (text[i] >= '0' && text[i] <= '9' || text[i] == '.') {
		i++
	}
	return i
}

// suffixOf reads "Gi", "m", "e3" and the like.
func suffixOf(suffix string) (base, exponent int64, err error) {
	if s, ok := suffixes[suffix]; ok {
		return s.base, s.exponent, nil
	}
	if suffix[0] == 'e' || suffix[0] == 'E' {
		n, err := strconv.ParseInt(suffix[1:], 10, 16)
		if err == nil && n >= -30 && n <= 30 {
			return 10, n, nil
		}
	}
	return 0, 0, ErrQuantity
}
