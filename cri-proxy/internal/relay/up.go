// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"encoding/binary"
	"errors"
)

var (
	errSettings = errors.New("malformed SETTINGS frame")
	errOverrun  = errors.New("client sent more DATA than it had credit for")
	errAfterEnd = errors.New("DATA after END_STREAM")
	errPending  = errors.New("too many SETTINGS frames without acknowledgement")
)

const maxPendingSettings = 1000

// upSide follows the frames from the client to the backend.
type upSide struct {
	c *conn
	p *pump

	endHeaders bool // the open header block carries END_STREAM
	head       frameHeader
	cut        dataCut
	call       *call // of the DATA frame being taken; nil: a stream that is not intercepted
}

func (s *upSide) midBlock() bool { return s.c.upHeaders.open != 0 }

func (s *upSide) flushed() {}

func (s *upSide) whole(h frameHeader) bool {
	switch h.kind {
	case frameHeaders, frameContinuation, framePushPromise, frameSettings, frameReset:
		return true
	}
	return false
}

func (s *upSide) frame(h frameHeader, b []byte) (action, error) {
	if s.midBlock() && h.kind != frameContinuation {
		return actPass, errHeaderBlock
	}
	switch h.kind {
	case frameHeaders, frameContinuation:
		return actPass, s.headers(h, b[headerLen:])
	case frameSettings:
		return s.settings(h, b)
	case frameReset:
		return actPass, s.reset(h)
	}
	return actPass, errFrame // a client cannot push
}

func (s *upSide) headers(h frameHeader, payload []byte) error {
	c := s.c
	if h.kind == frameHeaders {
		s.endHeaders = h.has(flagEndStream)
		if err := s.trailers(h); err != nil {
			return err
		}
	}
	done, err := c.upHeaders.read(h, payload)
	if err != nil || !done || s.endHeaders {
		return err
	}
	f := c.upHeaders.fields
	if f.path == "" || !s.wants(f.path) {
		return nil
	}
	c.mu.Lock()
	if c.calls[h.stream] == nil && !c.closed && !c.blind.Load() {
		c.open(h.stream, f)
	}
	c.mu.Unlock()
	return nil
}

func (s *upSide) wants(path string) (yes bool) {
	h := s.c.srv.cfg.Handler
	if h == nil {
		return false
	}
	s.c.guard(path, func() { yes = h.Wants(path) })
	return yes
}

// trailers lets DATA of the stream out before a second HEADERS of it; header blocks cannot wait without those of other streams, so the
// client's direction waits. gRPC clients send none.
func (s *upSide) trailers(h frameHeader) error {
	c := s.c
	c.mu.Lock()
	k := c.calls[h.stream]
	if k == nil && !c.waits(h.stream) {
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	if err := s.p.flush(); err != nil {
		return errBlind // the pump finds the broken connection at its next write
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k != nil && k.state == stateCollecting {
		c.giveUp(k, OpaqueTrailers)
	}
	for c.waits(h.stream) && !c.closed && !c.blind.Load() {
		c.up.kick()
		c.cond.Wait()
	}
	if k != nil && k.state != stateOver && h.has(flagEndStream) {
		k.clientEnd, k.closed = true, true
		if k.state == stateDiscarding {
			c.end(k, Result{})
		}
	}
	return nil
}

func (s *upSide) settings(h frameHeader, b []byte) (action, error) {
	if h.stream != 0 || h.length%6 != 0 || (h.has(flagAck) && h.length != 0) {
		return actPass, errSettings
	}
	if err := s.p.flush(); err != nil {
		return actPass, errBlind
	}
	c := s.c
	if h.has(flagAck) && c.spoke {
		c.spoke = false
		return actDrop, nil
	}
	if h.has(flagAck) {
		// The backend may apply its settings only when it sees this frame, so what is sent before obeys the old ones, what is sent after the new
		// ones. Whoever queues DATA holds conn.mu; an empty queue under it means that nothing overtakes.
		c.beforeShrink()
		err := c.up.write(b, false, c.clientAcked)
		c.up.flush()
		return actDrop, blindIf(err)
	}
	for p := b[headerLen:]; len(p) > 0; p = p[6:] {
		if binary.BigEndian.Uint16(p) == settingHeaderTableSize {
			c.downHeaders.allow(binary.BigEndian.Uint32(p[2:]))
		}
	}
	full := false
	err := c.up.write(b, false, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if full = len(c.acks) >= maxPendingSettings; !full {
			c.acks = append(c.acks, nil)
		}
		return true
	})
	if full {
		c.goBlind(errPending)
	}
	return actDrop, blindIf(err)
}

// blindIf turns a write error into the end of looking; the next write of the pump reports it.
func blindIf(err error) error {
	if err != nil {
		return errBlind
	}
	return nil
}

// beforeShrink waits, if the settings about to be acknowledged make the streams' windows smaller, until no DATA waits that the client
// sent within the larger ones.
func (c *conn) beforeShrink() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.inits) == 0 || c.inits[0] < 0 || c.inits[0] >= c.initWin {
		return
	}
	for c.flow.queued > 0 && !c.closed && !c.blind.Load() {
		c.up.kick()
		c.cond.Wait()
	}
}

// clientAcked applies the backend's oldest settings; false: queued DATA has to go first.
func (c *conn) clientAcked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up.pending() {
		return false
	}
	if len(c.inits) == 0 {
		return true
	}
	v := c.inits[0]
	c.inits = c.inits[1:]
	if v < 0 {
		return true
	}
	delta := v - c.initWin
	c.initWin = v
	for _, k := range c.calls {
		k.flow.backend += delta
		k.flow.client += delta
		c.grantStream(k) // a smaller window may leave the client with nothing while it is owed
	}
	c.schedule()
	c.down.kick()
	return true
}

func (s *upSide) reset(h frameHeader) error {
	if h.length != 4 || h.stream == 0 {
		return errFrame
	}
	c := s.c
	c.mu.Lock()
	known := c.calls[h.stream] != nil || c.waits(h.stream)
	c.mu.Unlock()
	if !known {
		return nil
	}
	// Between two frames the queue goes out before this RST_STREAM; nothing of the stream can follow it.
	if err := s.p.flush(); err != nil {
		return errBlind
	}
	c.mu.Lock()
	if k := c.calls[h.stream]; k != nil {
		c.end(k, Result{Code: -1, Err: ErrReset})
	}
	c.drop(h.stream)
	c.grantConn()
	c.mu.Unlock()
	c.down.kick()
	return nil
}

func (s *upSide) begin(h frameHeader) (mode, error) {
	if s.midBlock() {
		return modePass, errHeaderBlock
	}
	if h.kind != frameData {
		return modePass, nil
	}
	if h.stream == 0 {
		return modePass, errFrame
	}
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	n := int64(h.length)
	if n > c.flow.client {
		return modePass, errOverrun
	}
	k := c.calls[h.stream]
	if k == nil && !c.blocked && n <= c.flow.backend {
		c.flow.client -= n
		c.flow.backend -= n
		if c.flow.debt() < 0 {
			c.grantConn()
			c.down.kick()
		}
		return modePass, nil
	}
	if k != nil && k.clientEnd {
		return modePass, errAfterEnd
	}
	s.head, s.cut, s.call = h, cutData(h), k
	return modeTake, nil
}

func (s *upSide) piece(p []byte, last bool) (bool, error) {
	c := s.c
	data, ok := s.cut.next(p)
	if !ok {
		// Found with the first piece: the frame is put together again.
		c.up.queue(func(q []byte) []byte {
			q = appendFrameHeader(q, s.head.length, frameData, s.head.flags, s.head.stream)
			return append(q, p...)
		})
		return false, errFrame
	}
	end := last && s.head.has(flagEndStream)
	c.mu.Lock()
	switch {
	case c.blind.Load():
		c.up.queue(func(q []byte) []byte { return appendData(q, s.head.stream, data, end) })
	case s.call != nil:
		c.take(s.call, data, len(p), end)
	default:
		c.flow.client -= int64(len(p))
		c.queuePlain(s.head.stream, data, end)
		if last && s.cut.pad > 0 && !end {
			// The backend never sees the padding and cannot give the stream's credit for it back.
			c.down.queue(func(q []byte) []byte { return appendWindowUpdate(q, s.head.stream, int64(s.cut.pad)) })
		}
		c.grantConn()
	}
	c.mu.Unlock()
	c.down.kick()
	c.up.flush()
	return false, nil
}
