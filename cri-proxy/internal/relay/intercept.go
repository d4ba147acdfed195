// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

type state int

const (
	stateCollecting state = iota // DATA is held until END_STREAM
	stateDeciding                // the Handler has the message
	stateSending                 // the verdict's message waits for credit or is out
	statePassing                 // given up: the original bytes go through our queue
	stateRejecting               // reset at the backend, the client's answer waits for the barrier
	stateDiscarding              // the backend has ended the call, the client goes on sending
	stateOver
)

const prefixLen = 5 // gRPC: compressed flag and length of a message

// call is one intercepted stream. Its fields are guarded by conn.mu.
type call struct {
	Call
	state     state
	flow      balance
	held      []byte
	counted   int // bytes in conn.held
	clientEnd bool
	closed    bool // END_STREAM has gone to the backend
	entry     *entry
	deadline  time.Time
	cancel    context.CancelFunc
	reject    *Rejection
	done      chan Result // capacity 1
	delivered bool
	// answer is how the backend has ended the call, once it has: that may not have been forwarded yet.
	answer   Result
	answered bool

	// Only touched by the pump that reads the backend.
	headersSeen bool
	reply       []byte
	replyLost   bool
}

// open begins an interception; conn.mu is held, as in all functions here that say nothing else.
func (c *conn) open(stream uint32, f fields) {
	k := &call{
		Call: Call{Path: f.path, Conn: c.id, Stream: stream},
		flow: balance{backend: c.initWin, client: c.initWin},
		done: make(chan Result, 1),
	}
	if d, ok := parseTimeout(f.timeout); ok {
		k.deadline = time.Now().Add(d)
	}
	c.calls[stream] = k
	c.active.Add(1)
}

// take books raw bytes of DATA that are not forwarded as they come, of which data is left without padding.
func (c *conn) take(k *call, data []byte, raw int, end bool) {
	c.flow.client -= int64(raw)
	k.flow.client -= int64(raw)
	switch k.state {
	case stateCollecting:
		c.collect(k, data, end)
	case statePassing:
		c.pass(k, data, end)
	case stateDiscarding:
		if end {
			c.endStream(k)
			c.end(k, Result{})
		}
	default:
		// The call was ended by the backend while this frame was being read: nobody waits for it.
	}
	if k.state != stateOver {
		c.grantStream(k)
	}
	c.grantConn()
}

func (c *conn) collect(k *call, data []byte, end bool) {
	k.held = append(k.held, data...)
	k.counted += len(data)
	c.held += len(data)
	k.clientEnd = end
	if why := c.shape(k); why != "" {
		c.giveUp(k, why)
		return
	}
	if end {
		k.state = stateDeciding
		c.start(k, k.held[prefixLen:], "")
	}
}

// shape tells why what is held cannot be shown, as soon as that is known.
func (c *conn) shape(k *call) Opaque {
	limits := &c.srv.cfg.Limits
	if len(k.held) > 0 && k.held[0] == 1 {
		return OpaqueCompressed
	}
	if len(k.held) > 0 && k.held[0] != 0 {
		return OpaqueShape
	}
	if len(k.held) < prefixLen {
		if k.clientEnd {
			return OpaqueShape
		}
		return ""
	}
	size := int(binary.BigEndian.Uint32(k.held[1:prefixLen]))
	switch have := len(k.held) - prefixLen; {
	case size > limits.Message || c.held > limits.Held:
		return OpaqueTooLarge
	case have > size || (k.clientEnd && have != size):
		return OpaqueShape
	}
	return ""
}

// giveUp forwards what is held and all that follows as it came.
func (c *conn) giveUp(k *call, why Opaque) {
	k.state = statePassing
	data := k.held
	k.held = nil
	c.start(k, nil, why)
	if len(data) == 0 && !k.clientEnd {
		return
	}
	k.flow.queued += int64(len(data))
	k.entry = &entry{stream: k.Stream, call: k, data: data, end: k.clientEnd}
	c.enqueue(k.entry)
}

// pass sends DATA of a call that was given up. It cannot simply be forwarded: the client may have got credit from us.
func (c *conn) pass(k *call, data []byte, end bool) {
	k.clientEnd = end
	k.flow.queued += int64(len(data))
	if e := k.entry; e != nil {
		if e.off > len(e.data)/2 {
			e.data = e.data[:copy(e.data, e.data[e.off:])]
			e.off = 0
		}
		e.data = append(e.data, data...)
		e.end = end
		c.schedule()
		return
	}
	if len(data) == 0 && !end {
		return
	}
	k.entry = &entry{stream: k.Stream, call: k, data: append([]byte(nil), data...), end: end}
	c.enqueue(k.entry)
}

// start runs the goroutine of a call.
func (c *conn) start(k *call, msg []byte, why Opaque) {
	ctx, cancel := context.WithCancel(c.srv.base)
	if !k.deadline.IsZero() {
		cancel()
		ctx, cancel = context.WithDeadline(c.srv.base, k.deadline)
	}
	k.cancel = cancel
	c.callers.Go(func() { c.serve(ctx, k, msg, why) })
}

// serve is the goroutine of a call; conn.mu is not held.
func (c *conn) serve(ctx context.Context, k *call, msg []byte, why Opaque) {
	h := c.srv.cfg.Handler
	if why != "" {
		c.guard(k.Path, func() { h.Opaque(&k.Call, why) })
	} else {
		var v Verdict
		c.guard(k.Path, func() { v = h.Request(ctx, &k.Call, msg) })
		c.decide(k, v)
		if v.Reject != nil {
			return
		}
		if v.Meanwhile != nil {
			c.guard(k.Path, v.Meanwhile)
		}
	}
	res := <-k.done
	c.guard(k.Path, func() { h.Response(c.srv.base, &k.Call, res) })
}

// guard keeps a panic of the Handler from ending the process.
func (c *conn) guard(path string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			c.srv.event(Event{Kind: EventPanic, Conn: c.id, Path: path, Err: fmt.Errorf("handler panicked: %v", p)})
		}
	}()
	f()
}

// decide puts a verdict into force; conn.mu is not held.
func (c *conn) decide(k *call, v Verdict) {
	c.mu.Lock()
	if k.state != stateDeciding {
		c.mu.Unlock()
		return
	}
	data := k.held
	k.held = nil
	switch {
	case v.Reject != nil:
		k.state = stateRejecting
		k.reject = v.Reject
		c.unhold(k)
		c.up.queue(func(q []byte) []byte { return appendReset(q, k.Stream, codeCancel) })
		c.up.barrier(k)
	default:
		if v.Message != nil && len(v.Message) <= math.MaxUint32 {
			data = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(v.Message))), v.Message...)
		}
		k.state = stateSending
		k.entry = &entry{stream: k.Stream, call: k, data: data, end: true}
		c.enqueue(k.entry)
	}
	c.cond.Broadcast()
	c.grantConn()
	c.mu.Unlock()
	c.down.kick()
	c.up.flush()
}

// unhold gives back a call's part of conn.held.
func (c *conn) unhold(k *call) {
	c.held -= k.counted
	k.counted = 0
}

// deliver hands the result to the call's goroutine.
func (k *call) deliver(res Result) {
	if !k.delivered {
		k.delivered = true
		k.done <- res
	}
	if k.cancel != nil {
		k.cancel()
	}
}

// end forgets a call.
func (c *conn) end(k *call, res Result) {
	if k.state == stateOver {
		return
	}
	k.state = stateOver
	c.cond.Broadcast()
	delete(c.calls, k.Stream)
	c.active.Add(-1)
	k.held = nil
	c.unhold(k)
	if res.Err != nil && k.answered {
		res = k.answer // the client has gone with it, or without
	}
	k.deliver(res)
	c.drop(k.Stream)
}

func (c *conn) endCalls(err error) {
	for _, k := range c.calls {
		c.end(k, Result{Code: -1, Err: err})
	}
}

// endStream closes the client's side of a stream at the backend.
func (c *conn) endStream(k *call) {
	if !k.closed {
		k.closed = true
		c.up.queue(func(q []byte) []byte { return appendData(q, k.Stream, nil, true) })
	}
}

// serverEnded is called after END_STREAM of the backend was forwarded.
func (c *conn) serverEnded(k *call, res Result) {
	if k.state == stateOver {
		return
	}
	switch {
	case k.closed || k.state == stateRejecting:
		c.end(k, res)
	case k.clientEnd:
		c.drop(k.Stream)
		c.endStream(k)
		c.end(k, res)
	default:
		c.discard(k, res)
	}
	c.grantConn()
}

// discard is for a client that has not finished: its DATA is taken and given back as credit until it does.
func (c *conn) discard(k *call, res Result) {
	c.drop(k.Stream)
	k.state = stateDiscarding
	k.held = nil
	k.flow.queued = 0
	c.unhold(k)
	k.deliver(res)
	c.grantStream(k)
}
