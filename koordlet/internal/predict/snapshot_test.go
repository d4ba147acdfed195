// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/policy/predict"
)

func TestParseCheckpoint(t *testing.T) {
	t.Parallel()
	midnight := wall(time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC))
	want := predict.Checkpoint{
		Key: predict.NodeKey, Updated: midnight + 34200e6,
		CPU:    predict.Distribution{Reference: midnight, Weights: map[int]uint32{3: 10000, 9: 5000}, Total: 1500.5},
		Memory: predict.Distribution{},
	}
	got, err := ParseCheckpoint([]byte(upstreams))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v (-want +got)\n%s", err, diff)
	}
	for name, c := range map[string]struct{ in, want string }{
		"nothing":  {``, "parse checkpoint: unexpected end of JSON input"},
		"cut":      {upstreams[:100], "parse checkpoint: unexpected end of JSON input"},
		"no key":   {`{}`, "parse checkpoint: UID has 0 characters, want 1..253"},
		"long key": {`{"UID":"` + strings.Repeat("x", 254) + `"}`, "parse checkpoint: UID has 254 characters, want 1..253"},
		"no time":  {`{"UID":"u","LastUpdated":null}`, "parse checkpoint of u: no LastUpdated"},
		"epoch":    {`{"UID":"u","LastUpdated":"1970-01-01T00:00:00.5Z"}`, "parse checkpoint of u: no LastUpdated"},
		"year 1":   {`{"UID":"u","LastUpdated":"0001-01-01T00:00:00.5Z"}`, "parse checkpoint of u: no LastUpdated"},
	} {
		if _, err := ParseCheckpoint([]byte(c.in)); err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.want)
		}
	}
	if _, err := FormatCheckpoint(predict.Checkpoint{Key: "u", Updated: 1 << 62}); err == nil {
		t.Error("a year that JSON cannot say was written")
	}
}

// upstreams is a model as upstream writes it, but that it has no memory yet.
const upstreams = `{"UID":"__node__","LastUpdated":"2026-05-02T09:30:00Z",
 "CPU":{"referenceTimestamp":"2026-05-02T00:00:00Z","bucketWeights":{"3":10000,"9":5000},"totalWeight":1500.5},
 "Memory":{"referenceTimestamp":null}}`

func FuzzParseCheckpoint(f *testing.F) {
	f.Add([]byte(upstreams))
	f.Add([]byte(`{"UID":"u","LastUpdated":"2026-05-02T09:30:00.5+02:00","CPU":{"bucketWeights":{"-1":1},"totalWeight":1e-3}}`))
	for _, second := range []string{"1970-01-01T00:00:00Z", "1970-01-01T00:00:00.5Z", "0001-01-01T00:00:00.5Z"} {
		f.Add([]byte(`{"UID":"u","LastUpdated":"` + second + `"}`))
		f.Add([]byte(`{"UID":"u","LastUpdated":"2026-05-02T09:30:00Z","CPU":{"referenceTimestamp":"` + second + `"}}`))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseCheckpoint(b)
		if err != nil {
			if c.Key != "" {
				t.Fatal("an error and a result")
			}
			return
		}
		text, err := FormatCheckpoint(c)
		if err != nil {
			return // a year that JSON cannot say
		}
		again, err := ParseCheckpoint(text)
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		second, err := FormatCheckpoint(again)
		if diff := cmp.Diff(string(text), string(second)); err != nil || diff != "" {
			t.Fatalf("%v %s", err, diff)
		}
	})
}

func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	good := `{"UID":"u","LastUpdated":"2026-05-02T00:00:00Z","CPU":{"referenceTimestamp":"2026-05-02T00:00:00Z","bucketWeights":{"3":10000},"totalWeight":7},"Memory":{}}`
	for name, c := range map[string]struct {
		content string
		models  int
		log     string // in the log
		aside   bool
	}{
		"good":           {`{"version":1,"models":[` + good + `]}`, 1, "took up prediction models", false},
		"cut off":        {`{"version":1,"models":[` + good, 0, "set aside as", true},
		"empty":          {``, 0, "set aside as", true},
		"another format": {`{"version":2}`, 0, "format version 2, this koordlet reads 1", true},
		"one broken model": {`{"version":1,"models":[{"UID":""},` + good + `,{"UID":"v"}]}`, 1,
			"model 2: parse checkpoint of v: no LastUpdated", false},
		"a model that time has broken": {`{"version":1,"models":[` + strings.Replace(good, "2026", "1999", 1) + `]}`, 0, "restore model of u: cpu: the reference time", false},
		"too long":                     {strings.Repeat(" ", maxBytes+1), 0, "longer than", true},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, fileName)
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		b := newBench()
		p := b.predictor(dir)
		p.restore()
		if p.set.Len() != c.models || !strings.Contains(b.log.String(), c.log) {
			t.Errorf("%s: %d models, log %s", name, p.set.Len(), b.log.String())
		}
		kept, err := os.ReadFile(filepath.Join(dir, asideName))
		if c.aside && (err != nil || string(kept) != c.content) || !c.aside && err == nil {
			t.Errorf("%s: set aside: %v", name, err)
		}
	}
}

// TestModelsThatCannotBeWritten: one of them does not cost the others.
func TestModelsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	err := save(dir, []predict.Checkpoint{{Key: "bad", Updated: 1 << 62}, {Key: "good", Updated: wall(time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC))}})
	if err == nil || !strings.Contains(err.Error(), "format checkpoint of bad") {
		t.Error(err)
	}
	models, problems := load(dir)
	if len(models) != 1 || models[0].Key != "good" || problems != nil {
		t.Errorf("%v %v", models, problems)
	}
}

func FuzzParseSnapshot(f *testing.F) {
	f.Add([]byte(`{"version":1,"models":[{"UID":"u","CPU":{"referenceTimestamp":"2026-05-02T00:00:00Z","bucketWeights":{"3":1},"totalWeight":7}}]}`))
	f.Add([]byte(`{"version":1,"models":[{},null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		models, problems, err := parse(b)
		if err != nil && (models != nil || problems != nil) {
			t.Fatal("an error and a result")
		}
		var s snapshot
		if err == nil && (json.Unmarshal(b, &s) != nil || len(models)+len(problems) != len(s.Models)) {
			t.Fatalf("%d models and %d problems of %d", len(models), len(problems), len(s.Models))
		}
	})
}
