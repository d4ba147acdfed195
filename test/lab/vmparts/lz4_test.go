// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import (
	"bytes"
	"strings"
	"testing"
)

// frame wraps one block: magic, length, data.
func frame(block ...byte) []byte {
	return append([]byte{0x02, 0x21, 0x4c, 0x18, byte(len(block)), 0, 0, 0}, block...)
}

func TestDecodeLZ4Legacy(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for name, tc := range map[string]struct {
		in   []byte
		want string
	}{
		"literals only":     {frame(0x30, 'a', 'b', 'c'), "abc"},
		"overlapping match": {frame(0x14, 'a', 1, 0, 0x10, 'z'), "aaaaaaaaaz"},
		"match of four":     {frame(0x40, 'a', 'b', 'c', 'd', 4, 0, 0x10, '!'), "abcdabcd!"},
		"long literals":     {append(frame2(2+len(long)+1), append([]byte{0xf0, 255, 30}, long...)...), long},
		"two blocks":        {append(frame(0x10, 'a'), frame(0x10, 'b')[4:]...), "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := decodeLZ4Legacy(tc.in, len(tc.want))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// frame2 is the head of a frame whose block has n bytes.
func frame2(n int) []byte { return []byte{0x02, 0x21, 0x4c, 0x18, byte(n), byte(n >> 8), 0, 0} }

func TestDecodeLZ4LegacyRefuses(t *testing.T) {
	t.Parallel()
	for name, in := range map[string][]byte{
		"no magic":            []byte("plain text"),
		"block past the end":  frame2(100),
		"literals past end":   frame(0x40, 'a'),
		"match before start":  frame(0x14, 'a', 2, 0, 0x10, 'z'),
		"offset zero":         frame(0x14, 'a', 0, 0, 0x10, 'z'),
		"endless length":      frame(0xf0, 255, 255),
		"shorter than header": frame(0x10, 'a'),
	} {
		if _, err := decodeLZ4Legacy(in, 10); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzDecodeLZ4Block(f *testing.F) {
	f.Add([]byte{0x14, 'a', 1, 0, 0x10, 'z'})
	f.Fuzz(func(t *testing.T, in []byte) {
		head := []byte("head")
		out, err := decodeLZ4Block(bytes.Clone(head), in)
		if err == nil && !bytes.HasPrefix(out, head) {
			t.Errorf("earlier output was changed: %q", out)
		}
	})
}
