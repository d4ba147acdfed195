// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

func TestTail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nri, koordlet := open(t, dir, "nri", Options{}), open(t, dir, "koordlet", Options{})
	appendAll(t, nri, record("a", plan.CPUShares, 0, "1", "2"), record("b", plan.CPUShares, 10, "1", "2"))
	// The clock was put back between these two; they stay in their order.
	appendAll(t, koordlet, record("c", plan.CPUQuota, 20, "", "3"), record("d", plan.CPUQuota, 5, "", "4"))
	if err := os.WriteFile(filepath.Join(Dir(dir), "torn.jsonl"), []byte("{\"t\":\"2026-05-01T12:00:30Z\",\"via\":\"gone\"}\n{\"t\":"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		n     int
		since time.Time
		want  string
	}{
		"all":                {10, time.Time{}, "gone b d c a"},
		"newest":             {2, time.Time{}, "gone b"},
		"none":               {0, time.Time{}, ""},
		"since":              {10, t0.Add(10 * time.Second), "gone b"},
		"since the newest":   {10, t0.Add(time.Hour), ""},
		"since, and bounded": {1, t0, "gone"},
	} {
		got, err := Tail(dir, c.n, c.since)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range got {
			if r.Via == journal.ViaGone {
				names = append(names, "gone")
				continue
			}
			names = append(names, strings.Split(r.Target.Name, "/")[1])
		}
		if d := cmp.Diff(c.want, strings.Join(names, " ")); d != "" {
			t.Errorf("%s (-want +got): %s", name, d)
		}
	}
	if got, err := Tail(filepath.Join(dir, "none"), 5, time.Time{}); err != nil || got != nil {
		t.Errorf("no ledger: %v %v", got, err)
	}
}

func TestBackwardGivesUpLongLines(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte{'x'}, maxLine+5)
	data := slices.Concat([]byte("first\n"), long, []byte("\nlast\n"))
	var got []string
	if err := backward(bytes.NewReader(data), int64(len(data)), tailChunk, func(line []byte) bool {
		got = append(got, string(line))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"last", "first"}, got); d != "" {
		t.Errorf("(-want +got): %s", d)
	}
}

// Backwards there are the same lines as forwards, whatever the chunks are.
func FuzzBackward(f *testing.F) {
	f.Add([]byte("a\nbc\n\ndef"), uint8(1))
	f.Add([]byte("\n\n{\"via\":\"gone\"}\n"), uint8(3))
	f.Add(bytes.Repeat([]byte{'x'}, 4<<10), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, chunk uint8) {
		if len(data)/(int(chunk)+1) > 1024 {
			return // each chunk of a line copies what is behind it; those of Tail are 64 KiB
		}
		var want, got []string
		for line := range bytes.SplitSeq(data, []byte{'\n'}) {
			if len(line) > 0 {
				want = append(want, string(line))
			}
		}
		slices.Reverse(want)
		err := backward(bytes.NewReader(data), int64(len(data)), int(chunk)+1, func(line []byte) bool {
			got = append(got, string(line))
			return true
		})
		if err != nil || !slices.Equal(want, got) {
			t.Fatalf("%v\nwant %q\ngot  %q", err, want, got)
		}
	})
}
