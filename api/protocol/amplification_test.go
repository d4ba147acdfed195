// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
)

func TestParseAmplification(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		want map[string]int64
		err  string
	}{
		{in: ""}, {in: "{}"},
		{in: `{"cpu":1.50,"memory":1.05}`, want: map[string]int64{"cpu": 150, "memory": 105}},
		{in: `{"cpu":1}`, want: map[string]int64{"cpu": 100}},
		{in: `{"cpu":1.005}`, want: map[string]int64{"cpu": 100}},
		{in: `{"cpu":0.9}`, err: `ratio 0.9 of "cpu", want 1 to 100`},
		{in: `{"cpu":-2}`, err: "want 1 to 100"},
		{in: `{"cpu":1000}`, err: "want 1 to 100"},
		{in: `{"cpu":null}`, err: "want 1 to 100"},
		{in: `{"cpu":"1.5"}`, err: "does not fit"},
		{in: `1.5`, err: "want a JSON object"},
		{in: `{"cpu":1.5`, err: "JSON"},
	} {
		got, err := protocol.ParseAmplification(c.in)
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", c.in, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.in, d)
		}
	}
}

func FuzzAmplification(f *testing.F) {
	f.Add(`{"cpu":1.50,"memory":1.05}`)
	f.Add(`{"cpu":0.99}`)
	fuzz(f, "", protocol.ParseAmplification, protocol.FormatAmplification)
}
