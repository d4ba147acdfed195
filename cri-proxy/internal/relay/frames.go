// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import "encoding/binary"

// Frame types, flags and lengths of RFC 9113 §4 and §6.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameSettings     = 0x4
	framePushPromise  = 0x5
	frameGoAway       = 0x7
	frameWindowUpdate = 0x8
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingHeaderTableSize   = 0x1
	settingInitialWindowSize = 0x4

	headerLen      = 9
	maxDataPayload = 16384 // the least value SETTINGS_MAX_FRAME_SIZE may have, so every peer takes it
	initialWindow  = 65535
	maxStreamID    = 1<<31 - 1
	codeCancel     = 0x8

	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

// frameHeader is the 9 bytes in front of each frame.
type frameHeader struct {
	length      int
	kind, flags byte
	stream      uint32
}

func parseFrameHeader(b []byte) frameHeader {
	return frameHeader{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   b[3],
		flags:  b[4],
		stream: binary.BigEndian.Uint32(b[5:9]) & maxStreamID,
	}
}

func (h frameHeader) has(flag byte) bool { return h.flags&flag != 0 }

func appendFrameHeader(dst []byte, length int, kind, flags byte, stream uint32) []byte {
	dst = append(dst, byte(length>>16), byte(length>>8), byte(length), kind, flags)
	return binary.BigEndian.AppendUint32(dst, stream)
}

func appendWindowUpdate(dst []byte, stream uint32, increment int64) []byte {
	dst = appendFrameHeader(dst, 4, frameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(dst, uint32(increment))
}

func appendReset(dst []byte, stream, code uint32) []byte {
	return binary.BigEndian.AppendUint32(appendFrameHeader(dst, 4, frameReset, 0, stream), code)
}

func appendSettings(dst []byte) []byte { return appendFrameHeader(dst, 0, frameSettings, 0, 0) }

// appendGoAway asks the peer to open no more streams; those it has opened go on.
func appendGoAway(dst []byte) []byte {
	dst = appendFrameHeader(dst, 8, frameGoAway, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, maxStreamID)
	return binary.BigEndian.AppendUint32(dst, 0)
}

// appendData cuts data into DATA frames; end sets END_STREAM on the last one, which may be empty.
func appendData(dst []byte, stream uint32, data []byte, end bool) []byte {
	for len(data) > maxDataPayload {
		dst = appendFrameHeader(dst, maxDataPayload, frameData, 0, stream)
		dst = append(dst, data[:maxDataPayload]...)
		data = data[maxDataPayload:]
	}
	if len(data) == 0 && !end {
		return dst
	}
	var flags byte
	if end {
		flags = flagEndStream
	}
	dst = appendFrameHeader(dst, len(data), frameData, flags, stream)
	return append(dst, data...)
}

// dataCut takes the padding off a DATA payload that comes in pieces.
type dataCut struct {
	data   int  // bytes of data still to come
	padded bool // the pad length byte is still to come
	pad    int  // bytes of padding in all, its length byte included
}

func cutData(h frameHeader) dataCut { return dataCut{data: h.length, padded: h.has(flagPadded)} }

// next returns the data in piece; ok is false when there is more padding than payload.
func (d *dataCut) next(piece []byte) (data []byte, ok bool) {
	if d.padded && len(piece) > 0 {
		d.pad = int(piece[0]) + 1
		d.data -= d.pad
		d.padded = false
		piece = piece[1:]
		if d.data < 0 {
			return nil, false
		}
	}
	n := min(len(piece), d.data)
	d.data -= n
	return piece[:n], true
}
