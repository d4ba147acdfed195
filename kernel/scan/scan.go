// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package scan walks the text of kernel files without allocating: lines, fields, keyed numbers, amounts of memory.
//
// Inputs and outputs are byte slices of the caller's buffer and integers; it does no IO. The parsers of files that are
// read once a second for every container are built on it. It imports the standard library only.
package scan

import (
	"bytes"
	"errors"
	"math"
	"math/bits"
)

// ErrFormat is what a parser returns for text that no kernel writes. It is a value without details: whoever read the
// file adds its path.
var ErrFormat = errors.New("not the kernel's format")

// Line cuts the first line off, without its newline. It is empty at the end of the text, and for an empty line.
func Line(b []byte) (line, rest []byte) {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// Field cuts the first field off a line. Fields are separated by spaces and tabs; at the end of the line the field is empty.
func Field(line []byte) (field, rest []byte) {
	i := 0
	for i < len(line) && blank(line[i]) {
		i++
	}
	j := i
	for j < len(line) && !blank(line[j]) {
		j++
	}
	return line[i:j], line[j:]
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// Uint reads an unsigned decimal that is the whole of b. ok is false for anything else and for what 64 bits cannot hold.
func Uint(b []byte) (n uint64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	if len(b) < 20 { // 19 digits always fit
		for _, c := range b {
			if c -= '0'; c > 9 {
				return 0, false
			}
			n = n*10 + uint64(c)
		}
		return n, true
	}
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		hi, lo := bits.Mul64(n, 10)
		sum, carry := bits.Add64(lo, uint64(c), 0)
		if hi != 0 || carry != 0 {
			return 0, false
		}
		n = sum
	}
	return n, true
}

// UintField cuts the first field off a line and reads it.
func UintField(line []byte) (n uint64, rest []byte, ok bool) {
	f, rest := Field(line)
	n, ok = Uint(f)
	return n, rest, ok
}

// Hundredths reads a decimal with two digits after the point, "12.34" as 1234: the form of percentages in the kernel.
func Hundredths(b []byte) (n uint64, ok bool) {
	i := bytes.IndexByte(b, '.')
	if i <= 0 || len(b)-i != 3 {
		return 0, false
	}
	whole, ok1 := Uint(b[:i])
	part, ok2 := Uint(b[i+1:])
	if !ok1 || !ok2 || whole > 1<<50 {
		return 0, false
	}
	return whole*100 + part, true
}

// Pair splits "key=value". Without the sign the key is everything.
func Pair(b []byte) (key, value []byte) {
	if i := bytes.IndexByte(b, '='); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// Amount is where the value of a line goes whose key this is, with its colon.
type Amount[T ~int64] struct {
	Key string
	To  *T
}

// Amounts reads the lines "MemTotal:   6908120 kB" of a meminfo file into bytes; what the kernel calls kB is KiB
// (Documentation/filesystems/proc.rst, meminfo). before is how many fields stand before the key: none in /proc/meminfo, two in
// a NUMA node's ("Node 0"). Keys that nobody asks for are passed over; the first one asked for must be there. An amount is
// so bounded that the sum of eight fits. After an error part of the amounts may have been set.
func Amounts[T ~int64](b []byte, before int, into []Amount[T]) error {
	seen := false
	for len(b) > 0 {
		var line []byte
		line, b = Line(b)
		for range before {
			_, line = Field(line)
		}
		key, rest := Field(line)
		for i := range into {
			if string(key) != into[i].Key {
				continue
			}
			kib, _, ok := UintField(rest)
			if !ok || kib > math.MaxInt64/1024/8 {
				return ErrFormat
			}
			*into[i].To = T(kib * 1024) //nolint:gosec // bounded above
			seen = seen || i == 0
		}
	}
	if !seen {
		return ErrFormat
	}
	return nil
}
