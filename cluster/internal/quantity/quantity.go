// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package quantity reads JSON with Kubernetes quantities that no schema has looked at: annotations, templates that a schema leaves
// open, and objects that a mutating webhook sees before their schema is checked.
//
// Kubernetes' parser (k8s.io/apimachinery/pkg/api/resource) computes a power of ten as large as the exponent says: "1e-9999999"
// takes seconds, a digit more takes minutes, and nobody can end it. To write a number of a million digits takes it minutes too. So
// numbers are looked at before. Input: JSON. Output: the value, or an error that names the place. It must not import Kubernetes clients.
package quantity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrNumber is wrapped by the errors about numbers.
var ErrNumber = errors.New("more digits than an amount can have")

// What quantities need is less by far: their smallest unit is 1e-9, their largest value 9.2e18. These are cheap to compute.
const (
	maxExponentDigits = 3
	maxNumber         = 64
	// maxSuffix is the longest of "Ki", "m" and the like.
	maxSuffix = 2
	// maxDepth is less than [json.Unmarshal] takes; objects of Kubernetes have a tenth.
	maxDepth = 1000
)

// Unmarshal is [json.Unmarshal] of a value that may hold quantities anywhere.
func Unmarshal(data []byte, to any) error {
	if err := Check(data); err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

// Check refuses JSON in which a string or number is one that Kubernetes' parser had better not see, also one that a later value of the
// same key replaces: the parser sees both. What is no JSON it leaves to the decoder.
//
// Example: {"cpu":"1e-99999999"} is refused, with "cpu" in the error; {"note":"see 1e-99999999"} is not, for that is no number.
func Check(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := check(decoder, "", 0); !errors.Is(err, errNoJSON) {
		return err
	}
	return nil
}

// errNoJSON ends the walk: what the decoder says of it json.Unmarshal says too.
var errNoJSON = errors.New("no JSON")

// check reads one value.
func check(decoder *json.Decoder, path string, depth int) error {
	token, err := decoder.Token()
	if err != nil {
		return errNoJSON
	}
	switch v := token.(type) {
	case json.Number:
		return checkText(path, string(v))
	case string:
		return checkText(path, v)
	case json.Delim:
		if depth == maxDepth {
			return fmt.Errorf("%.100s: nested deeper than %d", path, maxDepth)
		}
		for i := 0; decoder.More(); i++ {
			at := fmt.Sprintf("%s[%d]", path, i)
			if v == '{' {
				key, err := decoder.Token()
				if err != nil {
					return errNoJSON
				}
				at = strings.TrimPrefix(fmt.Sprint(path, ".", key), ".")
			}
			if err := check(decoder, at, depth+1); err != nil {
				return err
			}
		}
		if _, err := decoder.Token(); err != nil { // the end of it
			return errNoJSON
		}
	}
	return nil
}

// checkText refuses a number with too many digits, before its exponent or in it. The parser trims spaces, and reads the exponent as
// [strconv.ParseInt] does.
func checkText(path, text string) error {
	const shown, digits = 40, "0123456789"
	text = strings.TrimSpace(text)
	rest := strings.TrimLeft(text, "+-."+digits)
	number := len(text) - len(rest)
	exponent, scientific := "", false
	if rest != "" && (rest[0] == 'e' || rest[0] == 'E') {
		exponent = strings.TrimLeft(rest[1:], "+-")
		scientific = strings.Trim(exponent, digits) == ""
	}
	long := number > maxNumber && (len(rest) <= maxSuffix || scientific)
	if number > 0 && scientific && len(exponent) > maxExponentDigits || long {
		return fmt.Errorf("%.100s: %.*q has %w", path, shown, text, ErrNumber)
	}
	return nil
}
