// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// verb is what an edit does to a field.
type verb uint8

const (
	// setNumber gives a varint field its value; 0 takes the field away, which says the same in proto3.
	setNumber verb = iota
	// setText gives a string field its value; "" takes it away.
	setText
	// setEntry edits the entries of a map, or of a repeated message with a key, whose field 1 is text; sub tells the rest.
	setEntry
	// within edits an embedded message.
	within
	// drop takes all length-delimited fields of the number away.
	drop
)

// edit is one change of a message. What no edit names keeps its bytes and its place.
type edit struct {
	num    protowire.Number
	verb   verb
	number int64
	text   string
	sub    []edit

	hit  bool // the field has been met
	same bool // within: the field has been met and stays as it is
}

// size bounds what an edit can add.
func size(edits []edit) int {
	n := 0
	for i := range edits {
		n += 2*protowire.SizeVarint(1<<63) + len(edits[i].text) + size(edits[i].sub)
	}
	return n
}

// patch is src with the edits made. It is src itself when there are none.
func patch(src []byte, edits []edit) ([]byte, error) {
	if len(edits) == 0 {
		return src, nil
	}
	return apply(make([]byte, 0, len(src)+size(edits)), src, edits)
}

// apply appends src with the edits made to dst.
func apply(dst, src []byte, edits []edit) ([]byte, error) {
	for i := range edits {
		edits[i].hit, edits[i].same = false, false
	}
	s := scanner{rest: src}
	for s.next() {
		e, err := find(edits, &s)
		if err != nil {
			return nil, err
		}
		if e == nil {
			dst = append(dst, s.raw...)
			continue
		}
		if dst, err = e.change(dst, &s); err != nil {
			return nil, err
		}
		e.hit = true
	}
	if s.err != nil {
		return nil, s.err
	}
	for i := range edits {
		if e := &edits[i]; !e.hit {
			var err error
			if dst, err = e.create(dst); err != nil {
				return nil, err
			}
		}
	}
	return dst, nil
}

// find is the edit for the current field, nil when there is none.
func find(edits []edit, s *scanner) (*edit, error) {
	var key []byte
	for i := range edits {
		e := &edits[i]
		if e.num != s.num || e.wire() != s.typ {
			continue
		}
		if e.verb != setEntry {
			return e, nil
		}
		if key == nil {
			var err error
			if key, err = firstText(s.value); err != nil {
				return nil, err
			}
		}
		if string(key) == e.text {
			return e, nil
		}
	}
	return nil, nil
}

func (e *edit) wire() protowire.Type {
	if e.verb == setNumber {
		return protowire.VarintType
	}
	return protowire.BytesType
}

// change appends what becomes of the current field.
func (e *edit) change(dst []byte, s *scanner) ([]byte, error) {
	switch e.verb {
	case setNumber:
		if int64(s.number) == e.number {
			return append(dst, s.raw...), nil
		}
		return e.create(dst)
	case setText:
		if string(s.value) == e.text {
			return append(dst, s.raw...), nil
		}
		return e.create(dst)
	case setEntry:
		dst, _, err := e.replace(dst, s, s.value)
		return dst, err
	case within:
		return e.changeWithin(dst, s)
	}
	return dst, nil
}

// changeWithin edits an embedded message. One that was sent in parts becomes whole at the place of its first part,
// unless nothing changes.
func (e *edit) changeWithin(dst []byte, s *scanner) ([]byte, error) {
	if e.hit {
		if e.same {
			dst = append(dst, s.raw...)
		}
		return dst, nil
	}
	whole := join(nil, s.value)
	for later := (scanner{rest: s.rest}); later.next(); {
		if later.bytes(e.num) {
			whole = join(whole, later.value)
		}
	}
	dst, same, err := e.replace(dst, s, whole)
	e.same = same
	return dst, err
}

// replace appends the message whole with e's sub-edits made, or the field as it was when they change nothing.
func (e *edit) replace(dst []byte, s *scanner, whole []byte) (out []byte, same bool, err error) {
	start := len(dst)
	dst = protowire.AppendTag(dst, e.num, protowire.BytesType)
	inside := len(dst)
	if dst, err = apply(dst, whole, e.sub); err != nil {
		return nil, false, err
	}
	if bytes.Equal(dst[inside:], whole) {
		return append(dst[:start], s.raw...), true, nil
	}
	return putLength(dst, inside), false, nil
}

// create appends the field new, as far as there is something to say.
func (e *edit) create(dst []byte) ([]byte, error) {
	start := len(dst)
	switch {
	case e.verb == setNumber && e.number != 0:
		dst = protowire.AppendTag(dst, e.num, protowire.VarintType)
		return protowire.AppendVarint(dst, uint64(e.number)), nil
	case e.verb == setText && e.text != "":
		dst = protowire.AppendTag(dst, e.num, protowire.BytesType)
		return protowire.AppendString(dst, e.text), nil
	case e.verb == setEntry || e.verb == within:
		dst = protowire.AppendTag(dst, e.num, protowire.BytesType)
		inside := len(dst)
		if e.verb == setEntry {
			dst = protowire.AppendTag(dst, 1, protowire.BytesType)
			dst = protowire.AppendString(dst, e.text)
		}
		dst, err := apply(dst, nil, e.sub)
		if err != nil || len(dst) == inside {
			return dst[:start], err
		}
		return putLength(dst, inside), nil
	}
	return dst, nil
}

// putLength puts the length of dst[at:] before it.
func putLength(dst []byte, at int) []byte {
	var room [10]byte
	n := len(dst) - at
	width := protowire.SizeVarint(uint64(n))
	dst = append(dst, room[:width]...)
	copy(dst[at+width:], dst[at:at+n])
	protowire.AppendVarint(dst[:at], uint64(n))
	return dst
}
