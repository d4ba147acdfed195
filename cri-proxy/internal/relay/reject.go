// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import "strconv"

const maxRejectMessage = 4 << 10

// appendRejection writes the HEADERS frame that ends a rejected call. trailers: the backend's response headers have passed already.
//
// Every field is a "literal without indexing, new name" (RFC 7541 §6.2.2) or, for :status 200, an entry of the static table: neither reads nor
// changes the dynamic table the client shares with the backend.
func appendRejection(dst []byte, stream uint32, r *Rejection, trailers bool) []byte {
	var block []byte
	if !trailers {
		block = append(block, 0x88) // :status: 200
		block = appendLiteral(block, "content-type", "application/grpc")
	}
	block = appendLiteral(block, "grpc-status", strconv.FormatUint(uint64(r.Code), 10))
	block = appendLiteral(block, "grpc-message", encodeMessage(r.Message))
	dst = appendFrameHeader(dst, len(block), frameHeaders, flagEndHeaders|flagEndStream, stream)
	return append(dst, block...)
}

func appendLiteral(dst []byte, name, value string) []byte {
	dst = append(dst, 0)
	dst = appendHpackString(dst, name)
	return appendHpackString(dst, value)
}

// appendHpackString writes a string without Huffman coding (RFC 7541 §5.2, 7-bit prefix integer).
func appendHpackString(dst []byte, s string) []byte {
	n := len(s)
	if n < 127 {
		dst = append(dst, byte(n))
		return append(dst, s...)
	}
	dst = append(dst, 127)
	for n -= 127; n >= 128; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	dst = append(dst, byte(n))
	return append(dst, s...)
}

// encodeMessage percent-encodes what grpc-message may not contain as it is (gRPC over HTTP/2, Status-Message).
func encodeMessage(s string) string {
	const hex = "0123456789ABCDEF"
	s = s[:min(len(s), maxRejectMessage)]
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if b := s[i]; b < ' ' || b > '~' || b == '%' {
			out = append(out, '%', hex[b>>4], hex[b&15])
			continue
		}
		out = append(out, s[i])
	}
	return string(out)
}
