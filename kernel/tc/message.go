// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"encoding/binary"

	"github.com/koord-rt/koord-rt/kernel/netlink"
)

// message is the body of a netlink message: a fixed header and attributes (include/uapi/linux/netlink.h).
type message []byte

// nested is a flag of an attribute's type (NLA_F_NESTED).
const nested = 0x8000

// bytes adds an attribute.
func (m *message) bytes(kind uint16, value []byte) {
	b := binary.NativeEndian.AppendUint16(*m, uint16(netlink.AttrSize+len(value))) //nolint:gosec // far below 64 KiB
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	*m = append(b, make([]byte, netlink.Align(len(value))-len(value))...)
}

func (m *message) u32(kind uint16, v uint32) {
	m.bytes(kind, binary.NativeEndian.AppendUint32(nil, v))
}

func (m *message) u64(kind uint16, v uint64) {
	m.bytes(kind, binary.NativeEndian.AppendUint64(nil, v))
}

// text adds a string with the zero that ends it.
func (m *message) text(kind uint16, s string) { m.bytes(kind, append([]byte(s), 0)) }

// nest adds an attribute that holds others.
func (m *message) nest(kind uint16, fill func(*message)) {
	var in message
	fill(&in)
	m.bytes(kind|nested, in)
}

// number is the 32-bit number at an offset, 0 where the value is too short.
func number(b []byte, at int) uint32 {
	if at < 0 || len(b) < at+4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b[at:])
}

// long is number with 64 bits.
func long(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(b)
}

// text is a string without the zero that ends it.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
