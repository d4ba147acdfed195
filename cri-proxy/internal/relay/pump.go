// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"errors"
	"io"
	"net"
	"sync"
)

const (
	smallBuffer = 4 << 10  // what an idle direction holds
	bigBuffer   = 64 << 10 // what a busy one borrows
	maxWhole    = 1 << 20  // longest frame that is looked at as a whole
	quietReads  = 4        // small reads in a row after which a borrowed buffer goes back
)

var (
	errFrame = errors.New("malformed frame")
	errBlind = errors.New("blind")
)

// bigBuffers is shared by the connections of one server.
type bigBuffers struct{ pool sync.Pool }

func (b *bigBuffers) get() *[bigBuffer]byte {
	if v, ok := b.pool.Get().(*[bigBuffer]byte); ok {
		return v
	}
	return new([bigBuffer]byte)
}

func (b *bigBuffers) put(v *[bigBuffer]byte) { b.pool.Put(v) }

// mode says what becomes of a frame that is walked in pieces.
type mode int

const (
	modePass mode = iota // forwarded
	modeTap              // forwarded, side.piece sees its payload
	modeTake             // not forwarded, side.piece gets its payload
)

// action says what becomes of a frame that was looked at as a whole.
type action int

const (
	actPass  action = iota // forwarded with its neighbours
	actDrop                // not forwarded
	actFlush               // forwarded now, then side.flushed runs
)

// side is what one direction does with its frames. An error makes the connection blind, from the frame in question on.
type side interface {
	// whole tells whether frames of this kind are looked at as a whole.
	whole(h frameHeader) bool
	// frame gets a frame as a whole, header included.
	frame(h frameHeader, b []byte) (action, error)
	// begin gets the header of any other frame.
	begin(h frameHeader) (mode, error)
	// piece gets the payload of a tapped or taken frame, last with the final piece (which may be empty). It says whether side.flushed is to run
	// once the frame was forwarded.
	piece(p []byte, last bool) (bool, error)
	flushed()
	// midBlock tells whether a header block is open.
	midBlock() bool
}

// pump moves one direction. It walks the frames in a buffer and writes neighbours in one go.
//
//	0        start            at               n
//	| written | to be written | not looked at  | free
type pump struct {
	c    *conn
	src  net.Conn
	out  *out
	side side

	small *[smallBuffer]byte
	big   *[bigBuffer]byte // nil unless borrowed
	buf   []byte
	quiet int

	start, at, n int
	left         int // payload bytes of the current frame still to come
	mode         mode
	preface      int // bytes of the client preface still to come
}

func newPump(c *conn, src net.Conn, o *out) *pump {
	p := &pump{c: c, src: src, out: o, small: new([smallBuffer]byte)}
	p.buf = p.small[:]
	return p
}

// run returns nil after EOF of its source and the error of any other end.
func (p *pump) run() error {
	defer p.release()
	for {
		n, err := p.src.Read(p.buf[p.n:])
		p.n += n
		full := p.n == len(p.buf)
		if n > 0 {
			if werr := p.walk(); errors.Is(werr, errBlind) {
				return p.runBlind(err)
			} else if werr != nil {
				return werr
			}
		}
		if err != nil {
			return p.end(err)
		}
		p.resize(n, full)
	}
}

// end forwards what cannot become a frame any more.
func (p *pump) end(err error) error {
	p.at = p.n
	if werr := p.flush(); werr != nil {
		return werr
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// walk looks at everything that was read.
func (p *pump) walk() error {
	for p.at < p.n {
		if p.preface > 0 {
			if err := p.readPreface(); err != nil {
				return p.goBlind(err)
			}
			continue
		}
		if p.left > 0 {
			if err := p.walkPiece(); err != nil {
				return err
			}
			continue
		}
		if p.c.blind.Load() {
			return errBlind
		}
		more, err := p.walkFrame()
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if err := p.flush(); err != nil {
		return err
	}
	p.n = copy(p.buf, p.buf[p.at:p.n])
	p.start, p.at = 0, 0
	return nil
}

func (p *pump) readPreface() error {
	k := min(p.preface, p.n-p.at)
	from := len(preface) - p.preface
	if string(p.buf[p.at:p.at+k]) != preface[from:from+k] {
		return errors.New("no HTTP/2 client preface")
	}
	p.preface -= k
	p.at += k
	return nil
}

// walkFrame looks at the frame that begins at p.at; more is false if it needs bytes that have not come.
func (p *pump) walkFrame() (more bool, err error) {
	if p.n-p.at < headerLen {
		return false, nil
	}
	h := parseFrameHeader(p.buf[p.at:])
	if !p.side.whole(h) {
		return true, p.walkBegin(h)
	}
	size := headerLen + h.length
	if size > maxWhole {
		return false, p.goBlind(errFrame)
	}
	if p.n-p.at < size {
		return false, nil
	}
	act, err := p.side.frame(h, p.buf[p.at:p.at+size])
	if err != nil {
		return false, p.goBlind(err)
	}
	if act == actDrop {
		if err := p.flush(); err != nil {
			return false, err
		}
		p.at += size
		p.start = p.at
		return true, nil
	}
	p.at += size
	if act == actFlush {
		if err := p.flush(); err != nil {
			return false, err
		}
		p.side.flushed()
	}
	return true, nil
}

func (p *pump) walkBegin(h frameHeader) error {
	m, err := p.side.begin(h)
	if err != nil {
		return p.goBlind(err)
	}
	p.mode = m
	if m == modeTake {
		if err := p.flush(); err != nil {
			return err
		}
		p.start = p.at + headerLen
	}
	p.at += headerLen
	p.left = h.length
	if p.left == 0 && m != modePass {
		return p.finishPiece(nil)
	}
	return nil
}

// walkPiece handles the payload at hand of the frame being walked.
func (p *pump) walkPiece() error {
	k := min(p.left, p.n-p.at)
	piece := p.buf[p.at : p.at+k]
	p.left -= k
	p.at += k
	if p.mode == modePass {
		return nil
	}
	return p.finishPiece(piece)
}

// finishPiece hands a piece to the side.
func (p *pump) finishPiece(piece []byte) error {
	if p.mode == modeTake {
		p.start = p.at
	}
	done, err := p.side.piece(piece, p.left == 0)
	if err != nil {
		return p.goBlind(err)
	}
	if done {
		if err := p.flush(); err != nil {
			return err
		}
		p.side.flushed()
	}
	return nil
}

// flush writes the range before p.at.
func (p *pump) flush() error {
	if p.start >= p.at {
		return nil
	}
	mid := p.preface > 0 || (p.left > 0 && p.mode != modeTake) || p.side.midBlock()
	err := p.out.write(p.buf[p.start:p.at], mid, nil)
	p.start = p.at
	return err
}

// goBlind stops looking at both directions. What was walked goes out first, then what is held, then the frame at p.at.
func (p *pump) goBlind(cause error) error {
	if errors.Is(cause, errBlind) {
		return cause
	}
	if err := p.flush(); err != nil {
		return err
	}
	p.c.goBlind(cause)
	return errBlind
}

// runBlind copies bytes until the end; readErr is what the last read returned.
func (p *pump) runBlind(readErr error) error {
	for {
		p.at = p.n
		p.left, p.mode, p.preface = 0, modePass, 0
		if p.start < p.at {
			if err := p.out.write(p.buf[p.start:p.at], false, nil); err != nil {
				return err
			}
		}
		p.start, p.at, p.n = 0, 0, 0
		if readErr != nil {
			return p.end(readErr)
		}
		p.n, readErr = p.src.Read(p.buf)
	}
}

// resize borrows a big buffer while much comes and gives it back when little does.
func (p *pump) resize(read int, full bool) {
	need := 0
	if p.left == 0 && p.n >= headerLen {
		// A frame that waits to be whole; pieces leave nothing behind.
		need = headerLen + parseFrameHeader(p.buf).length
	}
	switch {
	case need > bigBuffer && need > len(p.buf):
		p.swap(nil, make([]byte, need))
	case (full || need > smallBuffer) && len(p.buf) < bigBuffer:
		b := p.c.srv.buffers.get()
		p.swap(b, b[:])
	case read > smallBuffer || p.n > 0 || len(p.buf) == smallBuffer:
		p.quiet = 0
	default:
		if p.quiet++; p.quiet >= quietReads {
			p.swap(nil, p.small[:])
		}
	}
}

func (p *pump) swap(big *[bigBuffer]byte, buf []byte) {
	copy(buf, p.buf[:p.n])
	if p.big != nil {
		p.c.srv.buffers.put(p.big)
	}
	p.big, p.buf, p.quiet = big, buf, 0
}

func (p *pump) release() {
	if p.big != nil {
		p.c.srv.buffers.put(p.big)
		p.big, p.buf = nil, nil
	}
}
