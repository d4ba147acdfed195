// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	lz4LegacyMagic = 0x184c2102
	lz4MinMatch    = 4
)

var errLZ4 = errors.New("decompress lz4: input is damaged")

// decodeLZ4Legacy unpacks a legacy frame: the magic, then blocks of a 32 bit little endian length and data, up to the
// end of the input (LZ4 frame format, "Legacy frame").
func decodeLZ4Legacy(in []byte, size int) ([]byte, error) {
	if len(in) < 4 || binary.LittleEndian.Uint32(in) != lz4LegacyMagic {
		return nil, errors.New("decompress lz4: no legacy frame")
	}
	out := make([]byte, 0, size)
	for in = in[4:]; len(in) >= 4; {
		n := int(binary.LittleEndian.Uint32(in))
		if n == 0 || n > len(in)-4 {
			return nil, errLZ4
		}
		var err error
		if out, err = decodeLZ4Block(out, in[4:4+n], size); err != nil {
			return nil, err
		}
		in = in[4+n:]
	}
	if len(out) != size {
		return nil, fmt.Errorf("decompress lz4: got %d bytes, header says %d", len(out), size)
	}
	return out, nil
}

// decodeLZ4Block appends one block to out: token, literals, 16 bit match offset, and again; it ends with literals
// (LZ4 block format). More than limit bytes of output are an error: each byte of a match's length stands for 255 of them.
func decodeLZ4Block(out, in []byte, limit int) ([]byte, error) {
	for len(in) > 0 {
		token := in[0]
		literals, rest, ok := lz4Length(int(token>>4), in[1:])
		if !ok || literals > len(rest) {
			return nil, errLZ4
		}
		if literals > limit-len(out) {
			return nil, lz4TooLong(limit)
		}
		out = append(out, rest[:literals]...)
		in = rest[literals:]
		if len(in) == 0 {
			return out, nil
		}
		if len(in) < 2 {
			return nil, errLZ4
		}
		offset := int(binary.LittleEndian.Uint16(in))
		match, rest, ok := lz4Length(int(token&15), in[2:])
		if !ok || offset == 0 || offset > len(out) {
			return nil, errLZ4
		}
		if match+lz4MinMatch > limit-len(out) {
			return nil, lz4TooLong(limit)
		}
		in = rest
		for from, end := len(out)-offset, len(out)+match+lz4MinMatch; len(out) < end; from++ {
			out = append(out, out[from]) // byte by byte: a match may overlap what it produces
		}
	}
	return out, nil
}

func lz4TooLong(limit int) error {
	return fmt.Errorf("decompress lz4: more than the %d bytes that the header says", limit)
}

// lz4Length completes a four bit length: 15 continues in following bytes until one is not 255.
func lz4Length(n int, in []byte) (length int, rest []byte, ok bool) {
	if n < 15 {
		return n, in, true
	}
	for i, b := range in {
		n += int(b)
		if b != 255 {
			return n, in[i+1:], true
		}
	}
	return 0, nil, false
}
