// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package netlink walks the attributes of netlink messages, for the rooms that ask the kernel by them.
//
// Inputs and outputs are byte slices of the caller's; it does no IO and does not allocate. It imports the standard library only.
// Kernel documents: netlink(7), include/uapi/linux/netlink.h.
package netlink

import (
	"encoding/binary"
	"iter"
)

// AttrSize is the header of an attribute: 16 bits of length, with the header, and 16 of type.
const AttrSize = 4

// typeMask takes the flags off an attribute's type (NLA_TYPE_MASK).
const typeMask = 0x3fff

// Align is where what comes after so many bytes begins (NLA_ALIGN, NLMSG_ALIGN).
func Align(n int) int { return (n + 3) &^ 3 }

// Attributes are the attributes of a body, their types without flags, up to the first that is cut short.
func Attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for rest := b; ; {
			var kind uint16
			var value []byte
			var ok bool
			if kind, value, rest, ok = next(rest); !ok || !yield(kind, value) {
				return
			}
		}
	}
}

// Attribute is the value of the first attribute of a kind; nil when there is none.
func Attribute(b []byte, kind uint16) []byte {
	for {
		k, value, rest, ok := next(b)
		if !ok {
			return nil
		}
		if k == kind {
			return value
		}
		b = rest
	}
}

func next(b []byte) (kind uint16, value, rest []byte, ok bool) {
	if len(b) < AttrSize {
		return 0, nil, nil, false
	}
	length := int(binary.NativeEndian.Uint16(b))
	if length < AttrSize || length > len(b) {
		return 0, nil, nil, false
	}
	return binary.NativeEndian.Uint16(b[2:]) & typeMask, b[AttrSize:length], b[min(Align(length), len(b)):], true
}
