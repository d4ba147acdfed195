// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package strategy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// TestLoose: what a file says of the fields asked for is read, whatever else it says; what would cost much is refused in few words.
func TestLoose(t *testing.T) {
	t.Parallel()
	type file struct {
		Kind string `yaml:"kind"`
		List []struct {
			Name string `yaml:"name"`
		} `yaml:"list"`
		Map map[string]string `yaml:"map"`
	}
	for text, want := range map[string]string{
		"": "{ [] map[]}", "# nothing\n": "{ [] map[]}", "kind: a\nother: [1]\n---\nkind: b\n": "{a [] map[]}",
		"{\"kind\": \"a\",\n\t\"map\": {\"x\": \"1\"}}": "{a [] map[x:1]}",
		"kind: a\nother:\n  a: 1\n  a: 2\n":             "{a [] map[]}", // nobody reads that
		"map: &m {x: y}\nother: {<<: *m, z: 1}\n":       "{ [] map[x:y]}",
	} {
		var got file
		if err := strategy.Loose([]byte(text), &got); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: %+v, %v; want %s", text, got, err, want)
		}
	}
	var distinct strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&distinct, "a%d:\n", i)
	}
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"a key twice":             {"kind: a\nkind: a\n", nil},
		"a key 1000 times":        {"map:\n" + strings.Repeat(" a:\n", 1000) + "list: x", strategy.ErrDuplicateKey},
		"60,000 keys":             {distinct.String(), strategy.ErrTooLarge},
		"many nodes by aliases":   {"a: &a [" + strings.Repeat("x, ", 1000) + "]\nlist: [" + strings.Repeat("*a, ", 1000) + "]", strategy.ErrTooLarge},
		"much text by aliases":    {"a: &a " + strings.Repeat("x", 10_000) + "\nlist: [" + strings.Repeat("*a, ", 1000) + "]", strategy.ErrTooLarge},
		"an alias within its own": {"list: &a [*a]", strategy.ErrTooLarge},
		"a long file":             {strings.Repeat("#", strategy.MaxFileBytes+1), strategy.ErrTooLarge},
		"many wrong values":       {"list: [" + strings.Repeat("1, ", 20_000) + "]", nil},
		"no syntax":               {"{", nil},
	} {
		var got file
		err := strategy.Loose([]byte(c.text), &got)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %.200v, want %v", name, err, c.want)
			continue
		}
		if n := len(err.Error()); n > 10_000 {
			t.Errorf("%s: an error of %d bytes", name, n)
		}
	}
}
