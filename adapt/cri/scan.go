// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// scanner walks over a message's fields without copying. A field whose number is known but whose wire type is not the
// expected one is an unknown field, as for every protobuf parser.
type scanner struct {
	rest []byte
	err  error
	// The current field: number holds a varint, value the inside of a length-delimited one, raw all of its bytes.
	num    protowire.Number
	typ    protowire.Type
	number uint64
	value  []byte
	raw    []byte
}

// next moves to the next field. It is false at the end and at an error, which err tells apart.
func (s *scanner) next() bool {
	if len(s.rest) == 0 || s.err != nil {
		return false
	}
	num, typ, n := protowire.ConsumeTag(s.rest)
	if n < 0 {
		s.err = fmt.Errorf("%w: %w", errWire, protowire.ParseError(n))
		return false
	}
	s.num, s.typ, s.number, s.value = num, typ, 0, nil
	var m int
	switch typ {
	case protowire.VarintType:
		s.number, m = protowire.ConsumeVarint(s.rest[n:])
	case protowire.BytesType:
		s.value, m = protowire.ConsumeBytes(s.rest[n:])
	default:
		m = protowire.ConsumeFieldValue(num, typ, s.rest[n:])
	}
	if m < 0 {
		s.err = fmt.Errorf("%w: field %d: %w", errWire, num, protowire.ParseError(m))
		return false
	}
	s.raw, s.rest = s.rest[:n+m], s.rest[n+m:]
	return true
}

// bytes reports whether the field is the length-delimited one of this number.
func (s *scanner) bytes(num protowire.Number) bool {
	return s.num == num && s.typ == protowire.BytesType
}

// join merges the parts of a message that was sent in parts: protobuf defines that as their concatenation. The first part
// stays where it is, without room behind it, so that the next moves both to a place of their own.
func join(have, more []byte) []byte {
	if have == nil {
		return more[:len(more):len(more)]
	}
	return append(have, more...)
}

// firstText is the text in field 1: the key of map entries, KeyValue, Device and Mount, and the id of most messages.
func firstText(raw []byte) ([]byte, error) {
	var text []byte
	s := scanner{rest: raw}
	for s.next() {
		if s.bytes(1) {
			text = s.value
		}
	}
	return text, s.err
}

// pair reads a map's entry or a KeyValue: key = 1, value = 2.
func pair(raw []byte) (key, value []byte, err error) {
	s := scanner{rest: raw}
	for s.next() {
		switch {
		case s.bytes(1):
			key = s.value
		case s.bytes(2):
			value = s.value
		}
	}
	return key, value, s.err
}

// putPair adds a map's entry to m, which it makes when there is none.
func putPair(m map[string]string, raw []byte) (map[string]string, error) {
	key, value, err := pair(raw)
	if err != nil {
		return m, err
	}
	if m == nil {
		m = map[string]string{}
	}
	m[string(key)] = string(value)
	return m, nil
}

// varint reports whether the field is the varint of this number.
func (s *scanner) varint(num protowire.Number) bool {
	return s.num == num && s.typ == protowire.VarintType
}
