// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a Problem's text.
const (
	maxReason = 200
	maxQuote  = 60
)

// errTooLong is the error of a value beyond MaxValueBytes.
func errTooLong(s string) error {
	return fmt.Errorf("value has %d bytes, at most %d are read", len(s), MaxValueBytes)
}

// quote shows at most maxQuote bytes of a value in ASCII.
func quote(s string) string {
	if len(s) > maxQuote {
		return strconv.QuoteToASCII(s[:maxQuote]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// reason is an error's text as one short printable line.
func reason(err error) string {
	var b strings.Builder
	for _, r := range err.Error() {
		piece := string(r)
		if r < ' ' || r > '~' {
			piece = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
		}
		if b.Len()+len(piece) > maxReason {
			break
		}
		b.WriteString(piece)
	}
	return b.String()
}

// decode reads a JSON object after checking its size and shape. Unknown fields are ignored: the cluster side may be
// newer than the node.
func decode(s string, out any) error {
	if len(s) > MaxValueBytes {
		return errTooLong(s)
	}
	if trimmed := strings.TrimLeft(s, " \t\r\n"); trimmed == "" || trimmed[0] != '{' {
		return fmt.Errorf("%s: want a JSON object", quote(s))
	}
	if err := checkShape(s); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(s), out); err != nil {
		return jsonError(err)
	}
	return nil
}

// jsonError shortens encoding/json's errors, which name Go types.
func jsonError(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("not JSON at byte %d: %w", syntax.Offset, err)
	}
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) {
		return fmt.Errorf("field %s: a JSON %s does not fit", quote(typed.Field), typed.Value)
	}
	return err
}

// checkShape bounds depth and list length before anything is allocated for them.
func checkShape(s string) error {
	var entries [MaxDepth + 1]int
	depth, inString := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			if depth > MaxDepth {
				return fmt.Errorf("nested deeper than %d", MaxDepth)
			}
			entries[depth] = 1
		case c == '}' || c == ']':
			depth = max(depth-1, 0)
		case c == ',':
			entries[depth]++
			if entries[depth] > MaxEntries {
				return fmt.Errorf("a list has more than %d entries", MaxEntries)
			}
		}
	}
	return nil
}

// encode is compact JSON with sorted keys and without HTML escapes. The types it is given always encode.
func encode(v any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// sortedKeys makes errors and results deterministic.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// CheckCPUList checks a kernel CPU list such as "0-3,8": numbers and ranges, rising within a range, ids at most
// [MaxCPU], at most [MaxEntries] parts, no more CPUs than there are ids, one in two parts counted twice, no spaces. The
// empty list is an error.
func CheckCPUList(list string) error {
	if len(list) > MaxValueBytes {
		return errTooLong(list)
	}
	parts, cpus := 0, 0
	for part := range strings.SplitSeq(list, ",") {
		if parts++; parts > MaxEntries {
			return fmt.Errorf("CPU list has more than %d parts", MaxEntries)
		}
		first, last, isRange := strings.Cut(part, "-")
		low, ok := cpuID(first)
		high := low
		if isRange && ok {
			high, ok = cpuID(last)
		}
		if !ok || high < low {
			return fmt.Errorf("CPU list %s: part %s, want ids 0..%d as in 0-3,8", quote(list), quote(part), MaxCPU)
		}
		// Whoever makes a set of the list adds every CPU of every part.
		if cpus += high - low + 1; cpus > MaxCPU+1 {
			return fmt.Errorf("CPU list %s names more than %d CPUs", quote(list), MaxCPU+1)
		}
	}
	return nil
}

// cpuID reads one CPU id of digits only.
func cpuID(s string) (int, bool) {
	if s == "" || len(s) > 4 {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, n <= MaxCPU
}
