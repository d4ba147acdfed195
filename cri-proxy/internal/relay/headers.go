// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
)

const (
	defaultTableSize = 4096
	maxTableSize     = 1 << 20 // a peer that wants a larger dynamic table is relayed blindly
	maxHeaderString  = 1 << 20
	maxHeaderBlock   = 1 << 20
	maxHeaderList    = 4 << 20
)

var (
	errHeaderBlock = errors.New("header block out of sequence")
	errHeaderSize  = errors.New("header list too large to follow")
)

// fields are the header fields the relay is interested in.
type fields struct {
	path    string
	timeout string
	status  string
	message string
}

// headerReader listens to the header blocks of one direction.
type headerReader struct {
	dec *hpack.Decoder
	// allowed is the largest SETTINGS_HEADER_TABLE_SIZE the reader of this direction has advertised; set by the other direction.
	allowed atomic.Uint32
	applied uint32

	open   uint32 // stream whose block is not complete; 0: none
	block  int    // bytes of the open block
	list   int    // decoded size, RFC 9113 §6.5.2
	fields fields
}

func newHeaderReader() *headerReader {
	r := &headerReader{applied: defaultTableSize}
	r.allowed.Store(defaultTableSize)
	r.dec = hpack.NewDecoder(defaultTableSize, r.field)
	r.dec.SetMaxStringLength(maxHeaderString)
	return r
}

func (r *headerReader) field(f hpack.HeaderField) {
	r.list += int(f.Size())
	switch f.Name {
	case ":path":
		r.fields.path = f.Value
	case "grpc-timeout":
		r.fields.timeout = f.Value
	case "grpc-status":
		r.fields.status = f.Value
	case "grpc-message":
		r.fields.message = f.Value
	}
}

// allow raises the table size that encoders of this direction may use; lowering needs nothing: the encoder says so in its next block.
func (r *headerReader) allow(size uint32) {
	if size = min(size, maxTableSize); size > r.allowed.Load() {
		r.allowed.Store(size)
	}
}

// read takes a HEADERS, PUSH_PROMISE or CONTINUATION frame; done tells that the block is complete and fields are valid.
func (r *headerReader) read(h frameHeader, payload []byte) (done bool, err error) {
	if (h.kind == frameContinuation) != (r.open != 0) || h.stream == 0 || (r.open != 0 && r.open != h.stream) {
		return false, errHeaderBlock
	}
	fragment, err := blockFragment(h, payload)
	if err != nil {
		return false, err
	}
	if r.open == 0 {
		r.block, r.list, r.fields = 0, 0, fields{}
		if a := r.allowed.Load(); a != r.applied {
			r.dec.SetAllowedMaxDynamicTableSize(a)
			r.applied = a
		}
	}
	r.open = h.stream
	if r.block += len(fragment); r.block > maxHeaderBlock {
		return false, errHeaderSize
	}
	if _, err := r.dec.Write(fragment); err != nil {
		return false, fmt.Errorf("decode header block: %w", err)
	}
	if r.list > maxHeaderList {
		return false, errHeaderSize
	}
	if !h.has(flagEndHeaders) {
		return false, nil
	}
	r.open = 0
	if err := r.dec.Close(); err != nil {
		return false, fmt.Errorf("decode header block: %w", err)
	}
	return true, nil
}

// blockFragment takes padding, priority and promised stream off.
func blockFragment(h frameHeader, b []byte) ([]byte, error) {
	if h.kind == frameContinuation {
		return b, nil
	}
	pad, skip := 0, 0
	if h.has(flagPadded) {
		if len(b) == 0 {
			return nil, errHeaderBlock
		}
		pad, skip = int(b[0]), 1
	}
	if h.kind == frameHeaders && h.has(flagPriority) {
		skip += 5
	}
	if h.kind == framePushPromise {
		skip += 4
	}
	if skip+pad > len(b) {
		return nil, errHeaderBlock
	}
	return b[skip : len(b)-pad], nil
}

// parseTimeout reads a grpc-timeout ("8 digits and a unit", gRPC over HTTP/2); ok is false for anything else.
func parseTimeout(s string) (d time.Duration, ok bool) {
	if len(s) < 2 || len(s) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	if err != nil {
		return 0, false
	}
	unit := time.Duration(0)
	switch s[len(s)-1] {
	case 'H':
		unit = time.Hour
	case 'M':
		unit = time.Minute
	case 'S':
		unit = time.Second
	case 'm':
		unit = time.Millisecond
	case 'u':
		unit = time.Microsecond
	case 'n':
		unit = time.Nanosecond
	default:
		return 0, false
	}
	// 99999999 hours do not fit a Duration: as good as no deadline.
	if unit == time.Hour && n > 1<<20 {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// decodeMessage undoes the percent-encoding of grpc-message; what is not valid stays as it is.
func decodeMessage(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(v))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}
