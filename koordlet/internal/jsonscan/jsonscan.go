// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package jsonscan cuts a stream of JSON into raw values without holding more than one of them and without looking into
// what nobody reads: the kubelet's list of pods is megabytes, what is kept of it kilobytes.
//
// Inputs are an io.Reader and bounds; outputs are byte slices that are valid until the next call. Brackets and strings are
// checked, the rest of a value is left to whoever decodes it. A value beyond the bounds is read past, so that it takes
// nothing but itself from whoever reads. It imports the standard library only; it knows no Kubernetes object beside the shape
// of a list.
package jsonscan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Errors of this package; errors of the source pass through, a stream that ends inside a value is io.ErrUnexpectedEOF.
var (
	ErrSyntax   = errors.New("not JSON")
	ErrTooLarge = errors.New("JSON value too large")
)

// MaxDepth is the deepest nesting of one value. The deepest object of Kubernetes has about twenty levels without the free
// form parts of custom resources.
const MaxDepth = 64

// firstBuffer is what a Reader begins with; it doubles up to the largest value it meets.
const firstBuffer = 16 << 10

// Reader cuts a stream into values.
type Reader struct {
	src io.Reader
	buf []byte
	// buf[pos:end] is read and not used yet.
	pos, end int
	max      int
	// err is what the source said last.
	err error
}

// NewReader reads values of at most maxValue bytes each.
func NewReader(src io.Reader, maxValue int) *Reader {
	return &Reader{src: src, buf: make([]byte, min(firstBuffer, max(maxValue, 1)+1)), max: maxValue}
}

// Value is the next value, valid until the next call. At the end of the stream it is io.EOF. Of a value that is too long or
// too deep it is the beginning, beside ErrTooLarge, and the next call goes on behind it; any other error, and ErrTooLarge
// beside nil, ends the stream.
func (r *Reader) Value() ([]byte, error) {
	if _, err := r.peek(); err != nil {
		return nil, err
	}
	var s skipper
	for off := 0; ; {
		n, done, err := s.scan(r.buf[r.pos+off : r.end])
		off += n
		switch {
		case err != nil:
			return nil, err
		case off > r.max:
			return r.pass(&s, off, done)
		case done && s.deep:
			return r.take(off), fmt.Errorf("%w: nested deeper than %d", ErrTooLarge, MaxDepth)
		case done:
			return r.take(off), nil
		}
		if err := r.fill(); errors.Is(err, io.EOF) {
			if s.bare {
				return r.take(off), nil
			}
			return nil, io.ErrUnexpectedEOF
		} else if err != nil {
			return nil, err
		}
	}
}

// take cuts n bytes off.
func (r *Reader) take(n int) []byte {
	v := r.buf[r.pos : r.pos+n]
	r.pos += n
	return v
}

// peek is the next byte that is not white space; io.EOF at the end.
func (r *Reader) peek() (byte, error) {
	for {
		for ; r.pos < r.end; r.pos++ {
			if c := r.buf[r.pos]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
				return c, nil
			}
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
}

// expect takes one byte of punctuation.
func (r *Reader) expect(want byte) error {
	c, err := r.peek()
	if err != nil {
		return inside(err)
	}
	if c != want {
		return fmt.Errorf("%w: want %q, have %q", ErrSyntax, want, c)
	}
	r.pos++
	return nil
}

// inside turns the end of the stream into an error.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fill reads more behind buf[pos:end], which keeps its content but may move.
func (r *Reader) fill() error {
	if r.err != nil {
		return r.err
	}
	if r.pos > 0 {
		r.end = copy(r.buf, r.buf[r.pos:r.end])
		r.pos = 0
	}
	if r.end == len(r.buf) {
		if len(r.buf) > r.max {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, r.max)
		}
		grown := make([]byte, min(2*len(r.buf), r.max+1))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		// An error beside bytes is told after them.
		r.err = err
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	r.err = err
	return err
}

// List reads a Kubernetes list: each gets the raw elements of "items" in order, and the raw "metadata" is returned. Of an
// element that is too long or too deep, which is not whole, each gets the beginning: one object must not hide the others. An
// error of each ends the walk. A list that is cut off is an error even if each has seen all of its items.
func List(src io.Reader, maxValue, maxItems int, each func(raw []byte, whole bool) error) (metadata []byte, err error) {
	r := NewReader(src, maxValue)
	if err := r.expect('{'); err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		more, err := r.next(first, '}')
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		raw, err := r.Value()
		if err != nil {
			return nil, inside(err)
		}
		key, ok := String(raw)
		if !ok {
			return nil, fmt.Errorf("%w: a key is not a string", ErrSyntax)
		}
		if err := r.expect(':'); err != nil {
			return nil, err
		}
		if key == "items" {
			if err := r.items(maxItems, each); err != nil {
				return nil, err
			}
			continue
		}
		if raw, err = r.Value(); err != nil {
			return nil, inside(err)
		}
		if key == "metadata" {
			metadata = append(metadata[:0], raw...)
		}
	}
	if _, err := r.peek(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = fmt.Errorf("%w: text behind the list", ErrSyntax)
		}
		return nil, err
	}
	return metadata, nil
}

// items walks one array; null is an empty one.
func (r *Reader) items(maxItems int, each func(raw []byte, whole bool) error) error {
	c, err := r.peek()
	if err != nil {
		return inside(err)
	}
	if c == 'n' {
		_, err := r.Value()
		return inside(err)
	}
	if err := r.expect('['); err != nil {
		return err
	}
	for n := 0; ; n++ {
		more, err := r.next(n == 0, ']')
		if err != nil || !more {
			return err
		}
		if n == maxItems {
			return fmt.Errorf("%w: more than %d items", ErrTooLarge, maxItems)
		}
		raw, err := r.Value()
		if err != nil && raw == nil {
			return inside(err)
		}
		if err := each(raw, err == nil); err != nil {
			return err
		}
	}
}

// next takes the comma between two elements; false at the closing bracket.
func (r *Reader) next(first bool, closing byte) (bool, error) {
	c, err := r.peek()
	switch {
	case err != nil:
		return false, inside(err)
	case c == closing:
		r.pos++
		return false, nil
	case first:
		return true, nil
	}
	return true, r.expect(',')
}

// Field is the raw value at a path of keys below an object; false when there is none. A key given twice counts once, the
// first time. raw may be the beginning of an object: a value that is cut off there is what there is of it.
func Field(raw []byte, path ...string) ([]byte, bool) {
	for _, want := range path {
		value, ok := member(raw, want)
		if !ok {
			return nil, false
		}
		raw = value
	}
	return raw, true
}

// member is one field of a raw object.
func member(raw []byte, want string) ([]byte, bool) {
	rest := trim(raw)
	if len(rest) == 0 || rest[0] != '{' {
		return nil, false
	}
	for rest = trim(rest[1:]); len(rest) > 0 && rest[0] != '}'; {
		key, after, ok := cut(rest)
		if !ok {
			return nil, false
		}
		if after = trim(after); len(after) == 0 || after[0] != ':' {
			return nil, false
		}
		value, after, ok := cut(after[1:])
		if !ok {
			return nil, false
		}
		if name, ok := String(key); ok && name == want {
			return value, true
		}
		if rest = trim(after); len(rest) > 0 && rest[0] == ',' {
			rest = trim(rest[1:])
		}
	}
	return nil, false
}

// cut takes the first value off b, or what there is of it.
func cut(b []byte) (value, rest []byte, ok bool) {
	b = trim(b)
	if len(b) == 0 {
		return nil, nil, false
	}
	var s skipper
	n, _, err := s.scan(b)
	if err != nil {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// trim drops leading white space.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\n' || b[0] == '\r' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

// String is the text of a raw JSON string; false for anything else.
func String(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	for _, c := range raw[1 : len(raw)-1] {
		if c == '\\' || c == '"' || c < ' ' || c >= 0x80 {
			var out string
			err := json.Unmarshal(raw, &out)
			return out, err == nil
		}
	}
	return string(raw[1 : len(raw)-1]), true
}
