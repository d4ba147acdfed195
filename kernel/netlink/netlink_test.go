// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package netlink

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// attr is one attribute with its padding.
func attr(kind uint16, value string) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(AttrSize+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, Align(len(b))-len(b))...)
}

func TestAttribute(t *testing.T) {
	t.Parallel()
	const nested = 0x8000
	body := bytes.Join([][]byte{attr(1, "a"), attr(2|nested, "four"), attr(1, "second"), attr(3, "")}, nil)
	cut := attr(4, "longer than what is left")
	for name, c := range map[string]struct {
		body []byte
		kind uint16
		want string
		is   bool
	}{
		"the first":       {body, 1, "a", true},
		"its flags off":   {body, 2, "four", true},
		"without a value": {body, 3, "", true},
		"not there":       {body, 4, "", false},
		"cut short":       {append(bytes.Clone(body), cut[:len(cut)-8]...), 4, "", false},
		"before the cut":  {append(bytes.Clone(body), cut[:len(cut)-8]...), 2, "four", true},
		"no padding":      {body[:AttrSize+1], 1, "a", true},
		"too short":       {append(binary.NativeEndian.AppendUint16(nil, AttrSize-1), 1, 0), 1, "", false},
		"half a header":   {body[:AttrSize-1], 1, "", false},
		"nothing":         {nil, 0, "", false},
	} {
		if got := Attribute(c.body, c.kind); string(got) != c.want || (got != nil) != c.is {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAttributeDoesNotAllocate(t *testing.T) {
	body := append(attr(1, "a"), attr(2, "four")...)
	if n := testing.AllocsPerRun(100, func() {
		if Attribute(body, 2) == nil {
			t.Fatal("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzAttributes: whatever the body, its attributes lie in it one after the other, and Attribute finds the first of each kind.
func FuzzAttributes(f *testing.F) {
	f.Add(bytes.Join([][]byte{attr(1, "a"), attr(2, "four"), attr(1, "second")}, nil))
	f.Add([]byte{3, 0, 1, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		seen := map[uint16]bool{}
		taken := 0
		for kind, value := range Attributes(body) {
			taken += AttrSize
			if kind > typeMask || taken+len(value) > len(body) || !bytes.Equal(value, body[taken:taken+len(value)]) {
				t.Fatalf("attribute %d of %d bytes after %d of %d", kind, len(value), taken, len(body))
			}
			if got := Attribute(body, kind); !seen[kind] && (got == nil || !bytes.Equal(got, value)) {
				t.Fatalf("the first attribute %d is %q, found %q", kind, value, got)
			}
			seen[kind] = true
			taken = Align(taken + len(value))
		}
	})
}
