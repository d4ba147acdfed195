// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// FuzzDecode: any document is decoded or refused, into numbers and texts of both own types, and what was decoded is
// written and read as the same.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("amount: 2Gi\npercent: 20\nlist: [1, 10%]\n"))
	f.Add([]byte("amount: 1500m\npercent: 1k\n"))
	f.Add([]byte("{percent: -1}\n---\n{amount: 0x1F}"))
	f.Add([]byte("amount: &a [*a]"))
	f.Add([]byte("list: []"))
	type document struct {
		Amount  *strategy.Quantity     `json:"amount,omitempty"`
		Percent *strategy.IntOrString  `json:"percent,omitempty"`
		List    []strategy.IntOrString `json:"list,omitempty"`
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := strategy.Documents(data)
		if err != nil {
			return
		}
		for _, d := range docs {
			var got, again document
			if d.Decode(&got) != nil {
				continue
			}
			if got.Amount != nil {
				if _, err := got.Amount.Value(); err != nil {
					t.Fatalf("decoded, but no quantity: %v", err)
				}
			}
			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.List) == 0 {
				got.List = nil // an empty list is not written
			}
			if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(got, again) {
				t.Fatalf("%s reads as %+v (%v), want %+v", text, again, err, got)
			}
		}
	})
}

// TestCopiesOfAliases: a long text that many aliases name is not written out that often.
func TestCopiesOfAliases(t *testing.T) {
	t.Parallel()
	long, many := strings.Repeat("<", 300_000), strings.Repeat("*a, ", 20_000)
	for name, text := range map[string]string{
		"value": `extensions: {a: &a "` + long + `", b: [` + many + `]}`,
		"field": "hostApplications: [{name: &a " + long + "}" + strings.Repeat(", {name: *a}", 2000) + "]",
		"key":   "extensions: {a: &a {? " + strings.ReplaceAll(long, "<", "x") + " : 1}, b: [" + many + "]}",
	} {
		if spec, err := strategy.Parse([]byte(text)); !errors.Is(err, strategy.ErrTooLarge) || !reflect.DeepEqual(spec, strategy.Spec{}) {
			t.Errorf("%s: %.200v, want %v", name, err, strategy.ErrTooLarge)
		}
	}
	if _, err := strategy.Parse([]byte(`extensions: {a: &a "` + long + `", b: [*a, *a]}`)); err != nil {
		t.Errorf("three copies: %.200v", err)
	}
}
