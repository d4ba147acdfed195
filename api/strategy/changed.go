// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Bounds of what Changed says: so many fields, so many bytes of a value.
const (
	maxChanged = 32
	maxText    = 40
)

// Changed names the fields in which two specs differ, for people, sorted by name: "cpuBurstStrategy.policy none -> auto". A field that
// is not given is "-". Lists (host applications, blocks) and extensions are named without their values.
func Changed(old, now *Spec) []string {
	a, b := tree(old), tree(now)
	var out []string
	differ("", a, b, &out)
	slices.Sort(out)
	if more := len(out) - maxChanged; more > 0 {
		out = append(out[:maxChanged], fmt.Sprintf("and %d more", more))
	}
	return out
}

// tree is a spec as JSON has it; nothing for none.
func tree(s *Spec) map[string]any {
	if s == nil {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil // extensions that nobody can write
	}
	var out map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // as it is written
	if d.Decode(&out) != nil {
		return nil
	}
	return out
}

// differ walks two objects.
func differ(prefix string, a, b map[string]any, out *[]string) {
	both := maps.Clone(a)
	if both == nil {
		both = map[string]any{}
	}
	maps.Copy(both, b)
	for name := range both {
		x, y := a[name], b[name]
		if reflect.DeepEqual(x, y) {
			continue
		}
		left, isLeft := x.(map[string]any)
		right, isRight := y.(map[string]any)
		switch {
		case prefix == "" && name == "extensions":
			*out = append(*out, name)
		case (isLeft || x == nil) && (isRight || y == nil):
			differ(prefix+name+".", left, right, out)
		default:
			*out = append(*out, prefix+name+values(x, y))
		}
	}
}

// values is " old -> new", nothing for lists.
func values(x, y any) string {
	for _, v := range []any{x, y} {
		switch v.(type) {
		case []any, map[string]any:
			return ""
		}
	}
	return " " + short(x) + " -> " + short(y)
}

func short(v any) string {
	if v == nil {
		return "-"
	}
	text := fmt.Sprint(v)
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}
