// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

func FuzzScan(f *testing.F) {
	r := record("a", plan.CPUShares, 0, "1024", "512")
	f.Add(appendRecord(nil, &r, r.Up))
	f.Add([]byte("{\"via\":\"gone\"}\n{\"via\":\"x\",\"target\":{\"Level\":200}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, n := newTracker[span](nil), 0
		torn, err := scan(bytes.NewReader(data), func(r *journal.Record, s span) {
			n++
			tr.add(r, s)
			if s.off < 0 || s.off+int64(s.len) > int64(len(data)) {
				t.Fatalf("span %+v outside %d bytes", s, len(data))
			}
		})
		if err != nil || n+torn > bytes.Count(data, []byte{'\n'})+1 {
			t.Fatalf("%d records, %d torn: %v", n, torn, err)
		}
	})
}

func FuzzEncode(f *testing.F) {
	f.Add("knob", "a\"\\\n\x00\xff", uint64(1), uint8(4))
	f.Fuzz(func(t *testing.T, a, b string, n uint64, level uint8) {
		r := journal.Record{Time: t0, Boot: a, Inode: n, Target: plan.Target{Level: plan.Level(level), Name: b}, Knob: b, Original: []string{a, b}, Via: "v", Gen: n, Theirs: n%2 == 1, Judged: n%3 == 1, Found: a, Source: b}
		line := appendRecord(nil, &r, r.Up)
		if bytes.IndexByte(line, '\n') != len(line)-1 {
			t.Fatalf("not one line: %q", line)
		}
		var got, want journal.Record
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		std, _ := json.Marshal(&r)
		if err := json.Unmarshal(std, &want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func batch() []journal.Record {
	var rs []journal.Record
	for k := plan.CPUShares; len(rs) < 15; k++ {
		rs = append(rs, record("3f1d2c", k, 0, "1024", "512"))
	}
	return rs
}

func TestAppendAllocations(t *testing.T) {
	l := open(t, t.TempDir(), "nri", Options{})
	rs := batch()
	appendAll(t, l, rs...)
	n := testing.AllocsPerRun(100, func() {
		if err := l.Append(rs...); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations per batch of 15", n)
	}
}

func BenchmarkAppend15(b *testing.B) {
	dir := b.TempDir()
	l, err := Open(dir, "nri", Options{MaxBytes: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	rs := batch()
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Append(rs...); err != nil {
			b.Fatal(err)
		}
	}
}
