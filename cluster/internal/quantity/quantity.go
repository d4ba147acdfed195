// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package quantity reads JSON with Kubernetes quantities that no schema has looked at: annotations, templates that a schema leaves
// open, and objects that a mutating webhook sees before their schema is checked.
//
// Kubernetes' parser (k8s.io/apimachinery/pkg/api/resource) computes a power of ten as large as the exponent says: "1e-9999999"
// takes seconds, a digit more takes minutes, and nobody can end it. So exponents are looked at before. Input: JSON. Output: the
// value, or an error that names the place. It must not import Kubernetes clients.
package quantity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrExponent is wrapped by the errors about exponents.
var ErrExponent = errors.New("an exponent of more than three digits")

// maxExponentDigits is far beyond what any quantity needs (its smallest unit is 1e-9, its largest 9.2e18), and cheap to compute.
const maxExponentDigits = 3

// Unmarshal is [json.Unmarshal] of a value that may hold quantities anywhere.
func Unmarshal(data []byte, to any) error {
	if err := Check(data); err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

// Check refuses JSON in which a string or number has an exponent that Kubernetes' parser had better not see. What is no JSON it leaves
// to the decoder.
//
// Example: {"cpu":"1e-99999999"} is refused, with "cpu" in the error; {"note":"see 1e-99999999"} is not, for that is no number.
func Check(data []byte) error {
	if !bytes.ContainsAny(data, `eE\`) {
		return nil
	}
	var document any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if decoder.Decode(&document) != nil {
		return nil
	}
	return check("", document)
}

func check(path string, value any) error {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := check(strings.TrimPrefix(path+"."+key, "."), v[key]); err != nil {
				return err
			}
		}
	case []any:
		for i, element := range v {
			if err := check(fmt.Sprintf("%s[%d]", path, i), element); err != nil {
				return err
			}
		}
	case json.Number:
		return checkText(path, string(v))
	case string:
		return checkText(path, v)
	}
	return nil
}

// checkText refuses a number with a long exponent. The parser trims spaces, and reads the exponent as [strconv.ParseInt] does.
func checkText(path, text string) error {
	const shown = 40
	text = strings.TrimSpace(text)
	at := strings.IndexAny(text, "eE")
	if at < 0 || strings.Trim(text[:at], "+-.0123456789") != "" {
		return nil
	}
	exponent := strings.TrimLeft(text[at+1:], "+-")
	if len(exponent) <= maxExponentDigits || strings.Trim(exponent, "0123456789") != "" {
		return nil
	}
	return fmt.Errorf("%s: %.*q has %w: write the amount without", path, shown, text, ErrExponent)
}
