// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package protocol_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
)

func TestLendingWeight(t *testing.T) {
	t.Parallel()
	const text = `{"percent":50,"reasons":["memory-pressure","evictions"],"since":"2026-11-22T12:00:00Z"}`
	want := protocol.LendingWeight{
		Percent: 50, Reasons: []string{protocol.UnsoundMemory, protocol.UnsoundEvictions}, Since: 1795348800,
	}
	got, err := protocol.ParseLendingWeight(text)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if back := protocol.FormatLendingWeight(got); back != text {
		t.Errorf("written as %s", back)
	}
	for in, want := range map[string]string{
		``:                                 "want a JSON object",
		`{"since":"2026-11-22T12:00:00Z"}`: "percent: want 0..99",
		`{"percent":100,"since":"2026-11-22T12:00:00Z"}`: "percent: want 0..99",
		`{"percent":-1,"since":"2026-11-22T12:00:00Z"}`:  "percent: want 0..99",
		`{"percent":5}`:                                                   `since: "", want a time`,
		`{"percent":5,"since":"noon"}`:                                    `since: "noon", want a time`,
		`{"percent":5,"since":"1969-12-31T23:59:59Z"}`:                    "want a time",
		`{"percent":5,"since":"2026-11-22T12:00:00Z","reasons":["mood"]}`: `"mood" is none; known are stale-report`,
		`{"percent":5,"since":"2026-11-22T12:00:00Z","reasons":["evictions","disk-pressure","evictions"]}`: `reasons: "evictions" stands twice`,
	} {
		if _, err := protocol.ParseLendingWeight(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

func FuzzLendingWeight(f *testing.F) {
	f.Add(`{"percent":50,"reasons":["memory-pressure"],"since":"2026-11-22T12:00:00.5+01:00"}`)
	f.Add(`{"percent":50,"reasons":["evictions","evictions"],"since":"2026-11-22T12:00:00Z"}`)
	f.Add(`{"percent":0,"reasons":[],"since":"9999-12-31T23:59:59-01:00"}`)
	fuzz(f, "", protocol.ParseLendingWeight, protocol.FormatLendingWeight)
}
