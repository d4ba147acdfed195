// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package jsonscan

import "fmt"

// skipper finds the end of one value over several pieces of it.
type skipper struct {
	depth int
	// kinds has one bit per open bracket, the innermost lowest: 1 is an object.
	kinds uint64
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
			if s.depth++; s.depth > MaxDepth {
				return 0, false, fmt.Errorf("%w: nested deeper than %d", ErrTooLarge, MaxDepth)
			}
			s.kinds <<= 1
			if c == '{' {
				s.kinds |= 1
			}
		case c == '}' || c == ']':
			if s.bare {
				return i, true, nil
			}
			if s.depth == 0 || (s.kinds&1 == 1) != (c == '}') {
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
