// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"net"
	"sync"
)

// out is the writing end of one direction. The pump of the direction writes ranges of frames; others leave whole frames in the queue, which
// goes out between two frames and never inside a header block.
//
// Locks: mu is held while writing, so only the pump of this direction, the goroutine of a call and kick's goroutine may take it: the other pump
// must not wait for a peer that is not its own. Order: mu before conn.mu before qmu.
type out struct {
	w net.Conn
	// failed is told about a write error outside the pump.
	failed func()
	// mark is called for each barrier right before its SETTINGS frame is written; only for the backend.
	mark func(*call)

	mu  sync.Mutex
	mid bool // the last byte written is not the end of a frame, or a header block is open

	qmu      sync.Mutex
	q        []byte
	barriers []*call
	kicked   bool
}

// write sends b behind what is queued; mid tells whether b ends inside a frame or header block. under, if not nil, runs right before b is
// written; when it returns false the queue is sent once more and it is asked again.
func (o *out) write(b []byte, mid bool, under func() bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.drain(); err != nil {
		return err
	}
	for under != nil && !under() {
		if err := o.drain(); err != nil {
			return err
		}
	}
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	o.mid = mid
	return o.drain()
}

// drain writes the queue if this is a place for it. mu is held.
func (o *out) drain() error {
	if o.mid {
		return nil
	}
	o.qmu.Lock()
	q, barriers := o.q, o.barriers
	o.q, o.barriers = nil, nil
	o.qmu.Unlock()
	for _, c := range barriers {
		o.mark(c)
		q = appendSettings(q)
	}
	if len(q) == 0 {
		return nil
	}
	_, err := o.w.Write(q)
	return err
}

// queue runs add on the queue; flush or kick sends it.
func (o *out) queue(add func([]byte) []byte) {
	o.qmu.Lock()
	o.q = add(o.q)
	o.qmu.Unlock()
}

// barrier queues an empty SETTINGS frame whose acknowledgement is c's.
func (o *out) barrier(c *call) {
	o.qmu.Lock()
	o.barriers = append(o.barriers, c)
	o.qmu.Unlock()
}

func (o *out) pending() bool {
	o.qmu.Lock()
	defer o.qmu.Unlock()
	return len(o.q) > 0 || len(o.barriers) > 0
}

// flush sends the queue and may wait for the peer.
func (o *out) flush() {
	if !o.pending() {
		return
	}
	o.mu.Lock()
	err := o.drain()
	o.mu.Unlock()
	if err != nil {
		o.failed()
	}
}

// kick sends the queue without waiting for the peer; at most one goroutine per direction does so.
func (o *out) kick() {
	o.qmu.Lock()
	start := !o.kicked && (len(o.q) > 0 || len(o.barriers) > 0)
	o.kicked = o.kicked || start
	o.qmu.Unlock()
	if !start {
		return
	}
	go func() {
		o.mu.Lock()
		o.qmu.Lock()
		o.kicked = false
		o.qmu.Unlock()
		err := o.drain()
		o.mu.Unlock()
		if err != nil {
			o.failed()
		}
	}()
}

// closeWrite tells the peer that nothing follows.
func (o *out) closeWrite() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.drain(); err != nil {
		o.failed()
		return
	}
	if hc, ok := o.w.(interface{ CloseWrite() error }); ok {
		if hc.CloseWrite() == nil {
			return
		}
	}
	o.failed()
}
