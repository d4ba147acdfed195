// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package jsonscan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// headSize is how much is kept of a value that is too long: the names of a Kubernetes object come first.
	headSize = 4 << 10
	// passable is how many times as long as allowed a value may be to be read past; the stream ends with a longer one. The
	// API server takes 3 MiB, which JSON can write as 18.
	passable = 8
)

// pass reads to the end of a value that is too long, off bytes of it so far, and returns its beginning.
func (r *Reader) pass(s *skipper, off int, done bool) ([]byte, error) {
	tooLong := fmt.Errorf("%w: more than %d bytes", ErrTooLarge, r.max)
	head := bytes.Clone(r.buf[r.pos : r.pos+min(off, headSize)])
	r.pos += off
	for !done {
		if off > passable*r.max {
			return nil, tooLong
		}
		if err := r.fill(); errors.Is(err, io.EOF) && s.bare {
			break
		} else if err != nil {
			return nil, inside(err)
		}
		n, ended, err := s.scan(r.buf[r.pos:r.end])
		if err != nil {
			return nil, err
		}
		r.pos, off, done = r.pos+n, off+n, ended
	}
	return head, tooLong
}

// skipper finds the end of one value over several pieces of it.
type skipper struct {
	depth int
	// kinds has one bit per open bracket, the innermost lowest: 1 is an object. It holds no more than MaxDepth: deep says that
	// there were more, and that brackets are only counted since.
	kinds uint64
	deep  bool
	// text is inside a string, escape behind a backslash of it.
	text, escape bool
	// bare is inside a number or a word: only what follows tells its end.
	bare bool
}

// scan looks at the next piece, which begins at the value itself the first time. n is how much of it belongs to the
// value, done says that the value ends there.
func (s *skipper) scan(b []byte) (n int, done bool, err error) {
	for i, c := range b {
		switch {
		case s.escape:
			s.escape = false
		case s.text && c == '\\':
			s.escape = true
		case s.text:
			if c == '"' {
				s.text = false
				if s.depth == 0 {
					return i + 1, true, nil
				}
			}
		case c == '"' && !s.bare:
			s.text = true
		case c == '{' || c == '[':
			if s.bare {
				return 0, false, fmt.Errorf("%w: %q inside a word", ErrSyntax, c)
			}
			s.depth++
			s.deep = s.deep || s.depth > MaxDepth
			s.kinds <<= 1
			if c == '{' {
				s.kinds |= 1
			}
		case c == '}' || c == ']':
			if s.bare {
				return i, true, nil
			}
			if s.depth == 0 || !s.deep && (s.kinds&1 == 1) != (c == '}') {
				return 0, false, fmt.Errorf("%w: unexpected %q", ErrSyntax, c)
			}
			s.kinds >>= 1
			if s.depth--; s.depth == 0 {
				return i + 1, true, nil
			}
		case s.depth > 0:
		case c == ',' || c == ':' || c == ' ' || c == '\n' || c == '\r' || c == '\t':
			if !s.bare {
				return 0, false, fmt.Errorf("%w: unexpected %q", ErrSyntax, c)
			}
			return i, true, nil
		case c == '"':
			return 0, false, fmt.Errorf("%w: a quote inside a word", ErrSyntax)
		default:
			s.bare = true
		}
	}
	return len(b), false, nil
}
