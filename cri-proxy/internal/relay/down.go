// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"encoding/binary"
	"strconv"
	"time"
)

// downSide follows the frames from the backend to the client.
type downSide struct {
	c *conn
	p *pump

	call       *call // of the frame in hand
	endHeaders bool  // the open header block carries END_STREAM
	endData    bool
	reset      bool // the frame in hand is RST_STREAM
	cut        dataCut
	result     Result
}

func (s *downSide) midBlock() bool { return s.c.downHeaders.open != 0 }

func (s *downSide) whole(h frameHeader) bool {
	switch h.kind {
	case frameHeaders, frameContinuation, framePushPromise, frameSettings, frameReset, frameWindowUpdate:
		return true
	}
	return false
}

// lookup finds the intercepted call of a stream; cheap when there is none at all.
func (c *conn) lookup(stream uint32) *call {
	if c.active.Load() == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[stream]
}

func (s *downSide) frame(h frameHeader, b []byte) (action, error) {
	if s.midBlock() && h.kind != frameContinuation {
		return actPass, errHeaderBlock
	}
	switch h.kind {
	case frameSettings:
		return s.settings(h, b[headerLen:])
	case frameReset:
		return s.resetStream(h)
	case frameWindowUpdate:
		return s.window(h, b[headerLen:])
	}
	return s.headers(h, b[headerLen:])
}

func (s *downSide) headers(h frameHeader, payload []byte) (action, error) {
	c := s.c
	if h.kind != frameContinuation {
		s.endHeaders = h.kind == frameHeaders && h.has(flagEndStream)
		s.call = nil
		if h.kind == frameHeaders {
			s.call = c.lookup(h.stream)
		}
		if s.call != nil {
			s.call.headersSeen = true
		}
	}
	done, err := c.downHeaders.read(h, payload)
	if err != nil {
		return actPass, err
	}
	if !done || s.call == nil || !s.endHeaders {
		return actPass, nil
	}
	s.result = s.resultOf(c.downHeaders.fields)
	c.mu.Lock()
	s.call.answer, s.call.answered = s.result, true
	c.mu.Unlock()
	if err := s.decided(); err != nil {
		return actPass, err
	}
	return actFlush, nil
}

// rest is how long the answer to a call waits for the rest of its message, which is on its way.
const rest = 100 * time.Millisecond

// decided waits while the Handler has the message of the call in hand. A backend that does not know a method ends its calls at their
// HEADERS, which cannot be held back; the client must not go on before what the Handler does ahead of the call.
func (s *downSide) decided() error {
	c, k := s.c, s.call
	c.mu.Lock()
	early := k.state == stateCollecting || k.state == stateDeciding
	c.mu.Unlock()
	if !early {
		return nil
	}
	if err := s.p.flush(); err != nil {
		return errBlind // the pump finds the broken connection at its next write
	}
	until := time.Now().Add(rest)
	wake := time.AfterFunc(rest, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cond.Broadcast()
	})
	defer wake.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.closed && !c.blind.Load() && (k.state == stateDeciding || k.state == stateCollecting && time.Now().Before(until)) {
		c.cond.Wait()
	}
	if k.state == stateCollecting && !c.closed && !c.blind.Load() {
		c.discard(k, s.result) // before the client can answer the end with the rest
	}
	return nil
}

// resultOf reads the trailers of the call in hand.
func (s *downSide) resultOf(f fields) Result {
	r := Result{Code: -1, Message: decodeMessage(f.message), At: time.Now()}
	if code, err := strconv.ParseUint(f.status, 10, 31); err == nil {
		r.Code = int(code)
	}
	b := s.call.reply
	if !s.call.replyLost && len(b) >= prefixLen && b[0] == 0 && int(binary.BigEndian.Uint32(b[1:])) == len(b)-prefixLen {
		r.Reply = b[prefixLen:]
	}
	return r
}

// flushed runs after the end of the call in hand was forwarded.
func (s *downSide) flushed() {
	c := s.c
	c.mu.Lock()
	if s.reset {
		c.end(s.call, s.result)
		c.grantConn()
	} else {
		c.serverEnded(s.call, s.result)
	}
	c.mu.Unlock()
	s.call, s.reset = nil, false
	c.up.kick()
	c.down.flush()
}

func (s *downSide) settings(h frameHeader, p []byte) (action, error) {
	if h.stream != 0 || h.length%6 != 0 || (h.has(flagAck) && h.length != 0) {
		return actPass, errSettings
	}
	c := s.c
	if h.has(flagAck) {
		return s.acked()
	}
	window := int64(-1)
	for ; len(p) > 0; p = p[6:] {
		switch v := binary.BigEndian.Uint32(p[2:]); binary.BigEndian.Uint16(p) {
		case settingHeaderTableSize:
			c.upHeaders.allow(v)
		case settingInitialWindowSize:
			window = int64(v)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled = true
	if len(c.inits) >= maxPendingSettings {
		return actPass, errPending
	}
	c.inits = append(c.inits, window)
	return actPass, nil
}

// acked takes an acknowledgement of SETTINGS: the client's, or the barrier of a rejection.
func (s *downSide) acked() (action, error) {
	c := s.c
	c.mu.Lock()
	if len(c.acks) == 0 {
		c.mu.Unlock()
		return actPass, nil
	}
	k := c.acks[0]
	c.acks = c.acks[1:]
	if k == nil {
		c.mu.Unlock()
		return actPass, nil
	}
	over := k.state != stateRejecting
	if !over {
		c.end(k, Result{})
	}
	c.mu.Unlock()
	if over {
		return actDrop, nil
	}
	if err := s.p.flush(); err != nil {
		return actDrop, errBlind
	}
	return actDrop, blindIf(c.down.write(appendRejection(nil, k.Stream, k.reject, k.headersSeen), false, nil))
}

func (s *downSide) resetStream(h frameHeader) (action, error) {
	if h.length != 4 || h.stream == 0 {
		return actPass, errFrame
	}
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.calls[h.stream]
	if k != nil && k.state == stateRejecting {
		return actDrop, nil // crossed our reset; the client gets the rejection
	}
	if k == nil {
		c.drop(h.stream)
		return actPass, nil
	}
	s.call, s.result, s.reset = k, Result{Code: -1, Err: ErrReset}, true
	return actFlush, nil
}

func (s *downSide) window(h frameHeader, p []byte) (action, error) {
	if h.length != 4 {
		return actPass, errFrame
	}
	n := int64(binary.BigEndian.Uint32(p) & maxStreamID)
	c := s.c
	if h.stream != 0 && c.active.Load() == 0 {
		return actPass, nil
	}
	c.mu.Lock()
	pass := int64(0)
	k := c.calls[h.stream]
	switch {
	case h.stream == 0 && c.flow.debt() == 0 && len(c.waiting) == 0:
		c.flow.update(n)
		c.mu.Unlock()
		return actPass, nil
	case h.stream == 0:
		pass = c.flow.update(n)
	case k == nil:
		c.mu.Unlock()
		return actPass, nil
	default:
		if pass = k.flow.update(n); k.clientEnd {
			pass = 0
		}
	}
	c.schedule()
	c.mu.Unlock()
	c.up.kick()
	if err := s.p.flush(); err != nil {
		return actDrop, errBlind
	}
	if pass == 0 {
		return actDrop, nil
	}
	return actDrop, blindIf(c.down.write(appendWindowUpdate(nil, h.stream, pass), false, nil))
}

func (s *downSide) begin(h frameHeader) (mode, error) {
	if s.midBlock() {
		return modePass, errHeaderBlock
	}
	if h.kind != frameData {
		return modePass, nil
	}
	if h.stream == 0 {
		return modePass, errFrame
	}
	if s.call = s.c.lookup(h.stream); s.call == nil {
		return modePass, nil
	}
	s.cut, s.endData = cutData(h), h.has(flagEndStream)
	return modeTap, nil
}

// piece copies the reply while it passes.
func (s *downSide) piece(p []byte, last bool) (bool, error) {
	k := s.call
	data, ok := s.cut.next(p)
	switch {
	case !ok:
		// Forwarded already; the client will say what it thinks of the padding.
		k.replyLost = true
		s.cut = dataCut{}
	case k.replyLost:
	case len(k.reply)+len(data) > s.c.srv.cfg.Limits.Reply+prefixLen:
		k.reply, k.replyLost = nil, true
	default:
		k.reply = append(k.reply, data...)
	}
	if !last || !s.endData {
		return false, nil
	}
	s.result = Result{Code: -1} // ended without trailers: not gRPC
	return true, nil
}
