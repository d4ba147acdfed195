// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import (
	"bytes"
	"slices"
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
		"longer than header":  frame(0xb0, 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k'),
	} {
		if _, err := decodeLZ4Legacy(in, 10); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// manifold is a block of n bytes whose match is 255 times as long.
func manifold(n int) []byte {
	return slices.Concat([]byte{0x1f, 'a', 1, 0}, bytes.Repeat([]byte{255}, n), []byte{0, 0x10, 'z'})
}

// A block makes nothing beyond what the header says, so that a damaged kernel image does not take the memory of the host.
func TestDecodeLZ4BlockStopsAtTheSize(t *testing.T) {
	t.Parallel()
	if out, err := decodeLZ4Block(make([]byte, 0, 10), manifold(1<<20), 10); err == nil || out != nil {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	for limit, block := range map[int][]byte{10: {0x14, 'a', 1, 0, 0x10, 'z'}, 3: {0x30, 'a', 'b', 'c'}} {
		if out, err := decodeLZ4Block(nil, block, limit); err != nil || len(out) != limit {
			t.Errorf("%q, %v, want %d bytes", out, err, limit)
		}
		if out, err := decodeLZ4Block(nil, block, limit-1); err == nil {
			t.Errorf("%q of at most %d bytes", out, limit-1)
		}
	}
}

func FuzzDecodeLZ4Block(f *testing.F) {
	f.Add([]byte{0x14, 'a', 1, 0, 0x10, 'z'})
	f.Add(manifold(300))
	f.Fuzz(func(t *testing.T, in []byte) {
		head := []byte("head")
		const limit = 1 << 16
		out, err := decodeLZ4Block(bytes.Clone(head), in, limit)
		if err == nil && (!bytes.HasPrefix(out, head) || len(out) > limit) {
			t.Errorf("earlier output was changed, or there is too much: %d bytes, %.20q", len(out), out)
		}
	})
}
