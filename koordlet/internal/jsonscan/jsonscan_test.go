// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestReaderValue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want []string
		err  error
	}{
		"watch events":       {"{\"a\":1}\n{\"b\":[2]}\n", []string{`{"a":1}`, `{"b":[2]}`}, io.EOF},
		"without newlines":   {`{"a":1}{"b":2}`, []string{`{"a":1}`, `{"b":2}`}, io.EOF},
		"scalars":            {`1 "x" null`, []string{"1", `"x"`, "null"}, io.EOF},
		"brackets in text":   {`{"a":"}]\"{"} 7`, []string{`{"a":"}]\"{"}`, "7"}, io.EOF},
		"backslash at end":   {`{"a":"\\"}`, []string{`{"a":"\\"}`}, io.EOF},
		"nothing":            {" \n", nil, io.EOF},
		"cut in an object":   {`{"a":1`, nil, io.ErrUnexpectedEOF},
		"cut in a string":    {`"abc`, nil, io.ErrUnexpectedEOF},
		"wrong bracket":      {`{"a":1]`, nil, ErrSyntax},
		"comma first":        {`,`, nil, ErrSyntax},
		"deep":               {strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), nil, ErrTooLarge},
		"deep, not end":      {strings.Repeat("[", MaxDepth+1), nil, io.ErrUnexpectedEOF},
		"deepest":            {strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth), []string{strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)}, io.EOF},
		"largest":            {`"` + strings.Repeat("x", 98) + `"`, []string{`"` + strings.Repeat("x", 98) + `"`}, io.EOF},
		"too large":          {`"` + strings.Repeat("x", 99) + `"`, nil, ErrTooLarge},
		"too large, not end": {`"` + strings.Repeat("x", 4000), nil, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := max(100, 2*MaxDepth)
			if strings.Contains(name, "large") {
				limit = 100
			}
			// One byte per read and everything at once must agree.
			for _, src := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in)), iotest.DataErrReader(strings.NewReader(c.in))} {
				r := NewReader(src, limit)
				var got []string
				for {
					v, err := r.Value()
					if err != nil {
						if !errors.Is(err, c.err) {
							t.Errorf("error %v, want %v", err, c.err)
						}
						break
					}
					got = append(got, string(v))
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestReaderKeepsSourceError(t *testing.T) {
	t.Parallel()
	reset := errors.New("connection reset")
	r := NewReader(io.MultiReader(strings.NewReader(`{"a":1}{"b"`), iotest.ErrReader(reset)), 100)
	if v, err := r.Value(); string(v) != `{"a":1}` || err != nil {
		t.Fatalf("%s %v", v, err)
	}
	if _, err := r.Value(); !errors.Is(err, reset) {
		t.Fatalf("error %v, want %v", err, reset)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in       string
		metadata string
		want     []string
		err      error
	}{
		"pods":          {`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":2}]}` + "\n", `{"resourceVersion":"7"}`, []string{`{"a":1}`, `{"b":2}`}, nil},
		"metadata last": {`{"items":[{"a":1}],"metadata":{}}`, `{}`, []string{`{"a":1}`}, nil},
		"null items":    {`{"items":null}`, "", nil, nil},
		"no items":      {`{}`, "", nil, nil},
		"cut":           {`{"items":[{"a":1},{"b":2}]`, "", []string{`{"a":1}`, `{"b":2}`}, io.ErrUnexpectedEOF},
		"cut in list":   {`{"items":[{"a":1},`, "", []string{`{"a":1}`}, io.ErrUnexpectedEOF},
		"no comma":      {`{"items":[1 2]}`, "", []string{"1"}, ErrSyntax},
		"too many":      {`{"items":[1,2,3,4]}`, "", []string{"1", "2", "3"}, ErrTooLarge},
		"two lists":     {`{"items":[]}{}`, "", nil, ErrSyntax},
		"html":          {`<html>`, "", nil, ErrSyntax},
		"empty":         {``, "", nil, io.ErrUnexpectedEOF},
		"one too large": {`{"items":[{"a":1},{"name":"x","b":"` + strings.Repeat(`]}`, 3000) + `"},{"c":3}],"metadata":{}}`, `{}`, []string{`{"a":1}`, `{"name":"x",`, `{"c":3}`}, nil},
		"one too deep":  {`{"items":[{"name":"x",` + strings.Repeat(`"a":{`, MaxDepth) + strings.Repeat("}", MaxDepth+1) + `,{"c":3}]}`, "", []string{`{"name":"x",`, `{"c":3}`}, nil},
		"a word":        {`{"items":[` + strings.Repeat("7", 3000) + `,{"c":3}]}`, "", []string{strings.Repeat("7", 12), `{"c":3}`}, nil},
		"endless":       {`{"items":[{"b":"` + strings.Repeat("x", 9000) + `"}]}`, "", nil, ErrTooLarge},
		"cut in a long": {`{"items":[{"b":"` + strings.Repeat("x", 3000), "", nil, io.ErrUnexpectedEOF},
		"array":         {`[]`, "", nil, ErrSyntax},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			metadata, err := List(iotest.OneByteReader(strings.NewReader(c.in)), 1000, 3, func(raw []byte, whole bool) error {
				if !whole {
					raw = raw[:12]
				}
				got = append(got, string(raw))
				return nil
			})
			if !errors.Is(err, c.err) || err == nil && string(metadata) != c.metadata {
				t.Errorf("metadata %s, error %v, want %s, %v", metadata, err, c.metadata, c.err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	stop := errors.New("enough")
	if _, err := List(strings.NewReader(`{"items":[1]}`), 10, 10, func([]byte, bool) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error %v, want %v", err, stop)
	}
}

func TestField(t *testing.T) {
	t.Parallel()
	const doc = ` {"type" : "MODIFIED", "ob\u006aect":{"metadata":{"name":"a","resourceVersion":"12"},"n":5}, "type":"again"}`
	for name, c := range map[string]struct {
		path []string
		want string
		ok   bool
	}{
		"text":        {[]string{"type"}, `"MODIFIED"`, true},
		"escaped key": {[]string{"object", "n"}, "5", true},
		"nested":      {[]string{"object", "metadata", "resourceVersion"}, `"12"`, true},
		"absent":      {[]string{"object", "metadata", "uid"}, "", false},
		"not object":  {[]string{"type", "x"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := Field([]byte(doc), c.path...)
			if ok != c.ok || string(got) != c.want {
				t.Errorf("%s %v, want %s %v", got, ok, c.want, c.ok)
			}
		})
	}
	// A beginning has what stands in it; what it cuts off is no text and has no fields behind the cut.
	const half = `{"object":{"metadata":{"name":"a","labels":{"x":"y`
	if got, ok := Field([]byte(half), "object", "metadata", "name"); !ok || string(got) != `"a"` {
		t.Errorf("%s %v", got, ok)
	}
	if got, ok := Field([]byte(half), "object", "metadata", "labels", "x"); ok {
		if text, ok := String(got); ok {
			t.Errorf("half a text is %q", text)
		}
	}
	if got, ok := Field([]byte(half), "object", "metadata", "uid"); ok {
		t.Errorf("uid %s", got)
	}
	for _, bad := range []string{"", "[", `{"a"`, `{"a":`, `{"a":}`, `{a:1}`} {
		if got, ok := Field([]byte(bad), "x"); ok {
			t.Errorf("%q has a field: %s", bad, got)
		}
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{`"a"`: "a", `""`: "", `"a\nb"`: "a\nb", `"\u00e9"`: "é", `"é"`: "é"} {
		if got, ok := String([]byte(raw)); !ok || got != want {
			t.Errorf("%s: %q %v", raw, got, ok)
		}
	}
	for _, raw := range []string{"", `"`, "1", `"a`, `"a"b"`, `"\x"`, "\"\n\""} {
		if got, ok := String([]byte(raw)); ok {
			t.Errorf("%s: %q", raw, got)
		}
	}
}

// FuzzList: whatever encoding/json takes as a list, List takes with the same items, and nothing makes it hang or panic.
func FuzzList(f *testing.F) {
	for _, s := range []string{
		`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":"}"},{"b":[2,null,-1.5e3]}]}`,
		`{"items":null}`, `{"items":[[[]]]}`, `{"items":[1`, `{"items":["\"",true]}`,
		`{"items":[1],"ITEMS":[2]}`, `{"items":[1],"itemſ":[2]}`,
	} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, chunk uint8) {
		var got []string
		large := false
		_, err := List(&chunks{data: data, n: int(chunk) + 1}, 1<<12, 1<<10, func(raw []byte, whole bool) error {
			large = large || !whole
			got = append(got, compact(raw))
			return nil
		})
		var want struct {
			Items []json.RawMessage `json:"items"`
		}
		// encoding/json takes a key in any case, which List does not, and ſ is an s to it.
		if json.Unmarshal(data, &want) != nil || bytes.Count(bytes.ToLower(data), []byte("items")) != 1 || bytes.ContainsAny(data, `\ſ`) {
			return
		}
		if !bytes.HasPrefix(bytes.TrimSpace(data), []byte(`{"items"`)) || errors.Is(err, ErrTooLarge) || large {
			return
		}
		var all []string
		for _, raw := range want.Items {
			all = append(all, compact(raw))
		}
		if d := cmp.Diff(all, got); err != nil || d != "" {
			t.Errorf("error %v\n%s", err, d)
		}
	})
}

func compact(raw []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// chunks gives n bytes per read.
type chunks struct {
	data []byte
	n    int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.n)], c.data)
	c.data = c.data[n:]
	return n, nil
}

// BenchmarkList cuts a list of 80 pods of 10 KB.
func BenchmarkList(b *testing.B) {
	item := `{"metadata":{"name":"p"},"status":{"text":"` + strings.Repeat(`lorem ipsum `, 800) + `"}}`
	list := []byte(`{"items":[` + strings.Repeat(item+",", 79) + item + `]}`)
	b.SetBytes(int64(len(list)))
	for b.Loop() {
		n := 0
		if _, err := List(bytes.NewReader(list), 1<<20, 1000, func([]byte, bool) error { n++; return nil }); err != nil || n != 80 {
			b.Fatal(n, err)
		}
	}
}
