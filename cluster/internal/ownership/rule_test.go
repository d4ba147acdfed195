// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ownership

import (
	"reflect"
	"testing"
)

// TestYield: of a rule over two fields of which others have written one, ours is kept where the two go together, left out where not, and stays as it
// was where the rule is broken without it, too.
func TestYield(t *testing.T) {
	t.Parallel()
	rules := []Rule{{Fields: []Path{"/t/low", "/t/high"}, Broken: func(have map[Path]any) string {
		high, is := have["/t/high"].(int64)
		if !is {
			high = 70
		}
		if low, is := have["/t/low"].(int64); is && low >= high {
			return "low is not below high"
		}
		return ""
	}}}
	alias := func(p Path) []Path {
		if p == "/seed" {
			return []Path{"/t/high"}
		}
		return nil
	}
	mine := func(p Path) map[Path]bool { return map[Path]bool{p: true} }
	user := func(p Path) map[Path]string { return map[Path]string{p: "user"} }
	yields := func(p Path, stays bool, owner string) []Yielded {
		return []Yielded{{Path: p, Stays: stays, Why: "low is not below high", Owners: []string{owner}}}
	}
	for name, c := range map[string]struct {
		wanted, stored string
		mine           map[Path]bool
		others         map[Path]string
		want           string
		yielded        []Yielded
	}{
		"nobody else's": {wanted: `{"t": {"low": 75, "high": 80}, "x": 1}`, want: `{"t": {"low": 75, "high": 80}, "x": 1}`},
		"they go together": {wanted: `{"t": {"low": 55, "high": 80}}`, stored: `{"t": {"high": 60}}`, others: user("/t/high"),
			want: `{"t": {"low": 55, "high": 80}}`},
		"low gives way": {wanted: `{"t": {"low": 75, "high": 80}, "x": 1}`, stored: `{"t": {"high": 60}}`, others: user("/t/high"),
			want: `{"t": {"high": 80}, "x": 1}`, yielded: yields("/t/low", false, "/t/high (user)")},
		"high gives way": {wanted: `{"t": {"low": 40, "high": 50}}`, stored: `{"t": {"low": 60}}`, others: user("/t/low"),
			want: `{"t": {"low": 40}}`, yielded: yields("/t/high", false, "/t/low (user)")},
		"by another spelling, beside the default": {wanted: `{"t": {"low": 72, "high": 80}}`, stored: `{"seed": 75}`, others: user("/seed"),
			want: `{"t": {"high": 80}}`, yielded: yields("/t/low", false, "/seed (user)")},
		"what we have applied counts for nothing": {wanted: `{"t": {"low": 75, "high": 80}}`, stored: `{"t": {"low": 50, "high": 60}}`,
			mine: mine("/t/low"), others: user("/t/high"), want: `{"t": {"high": 80}}`, yielded: yields("/t/low", false, "/t/high (user)")},
		"without ours it is broken by the default": {wanted: `{"t": {"high": 71}, "x": 1}`, stored: `{"t": {"low": 72, "high": 80}}`,
			mine: mine("/t/high"), others: user("/t/low"), want: `{"t": {"high": 80}, "x": 1}`, yielded: yields("/t/high", true, "/t/low (user)")},
		"nor can it be taken back": {wanted: `{}`, stored: `{"t": {"low": 72, "high": 80}}`,
			mine: mine("/t/high"), others: user("/t/low"), want: `{"t": {"high": 80}}`, yielded: yields("/t/high", true, "/t/low (user)")},
		"both are theirs": {wanted: `{"t": {"low": 75, "high": 80}}`, stored: `{"t": {"low": 72, "high": 60}}`,
			others: map[Path]string{"/t/low": "user", "/t/high": "user"}, want: `{"t": {"low": 75, "high": 80}}`},
	} {
		stored := tree(t, c.stored)
		got, yielded := Yield(tree(t, c.wanted), stored, Owners{Mine: c.mine, Others: c.others}, alias, rules)
		if !reflect.DeepEqual(got, tree(t, c.want)) || !reflect.DeepEqual(yielded, c.yielded) {
			t.Errorf("%s: have %v, %+v", name, got, yielded)
		}
		if !reflect.DeepEqual(stored, tree(t, c.stored)) {
			t.Errorf("%s: what is stored was changed", name)
		}
	}
}
