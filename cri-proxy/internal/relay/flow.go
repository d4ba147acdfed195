// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

const (
	// grantBatch is how much withheld credit is given back to the client in one go; grantLow is how little credit the client may have left
	// before it gets back what there is. A client above grantLow can go on, so batching cannot stall it.
	grantBatch = 16 << 10
	grantLow   = 32 << 10
)

// balance compares the credit one side gave with the credit the other side believes to have, for the connection or for one stream.
//
//	backend  what the backend still takes from us
//	client   what the client may still send to us
//	queued   bytes that came from the client, wait here, and will use the backend's credit before anything the client sends from now on
//
// While nothing is intercepted, backend == client and queued == 0.
type balance struct {
	backend, client, queued int64
}

// debt is what the client was promised beyond the backend's credit; below zero the client is owed.
func (b *balance) debt() int64 { return b.client + b.queued - b.backend }

// grant returns the credit to give to the client now (0: none) and books it.
func (b *balance) grant() int64 {
	owed := -b.debt()
	if owed <= 0 || (owed < grantBatch && b.client > grantLow) {
		return 0
	}
	b.client += owed
	return owed
}

// update books a WINDOW_UPDATE of the backend and returns the part that is to reach the client.
func (b *balance) update(increment int64) int64 {
	b.backend += increment
	pass := max(-b.debt(), 0)
	b.client += pass
	return pass
}

// entry is DATA of one stream that waits for credit.
type entry struct {
	stream uint32
	call   *call // nil: a stream that is not intercepted; its stream-level credit passed verbatim, so only the connection's can be missing
	data   []byte
	off    int
	end    bool
}

func (e *entry) rest() int64 { return int64(len(e.data) - e.off) }

// enqueue adds an entry and sends what may go. conn.mu is held, here and in the rest of this file.
func (c *conn) enqueue(e *entry) {
	c.waiting = append(c.waiting, e)
	c.schedule()
}

// schedule moves waiting DATA to the backend's queue, in the order it came, as far as the backend's credit reaches. A stream without
// credit of its own is passed over; without credit of the connection all wait, so nobody starves.
func (c *conn) schedule() {
	kept := c.waiting[:0]
	blocked := false
	for _, e := range c.waiting {
		if blocked {
			kept = append(kept, e)
			continue
		}
		c.send(e)
		if e.rest() == 0 {
			c.sent(e)
			continue
		}
		kept = append(kept, e)
		blocked = c.flow.backend <= 0
	}
	clear(c.waiting[len(kept):])
	c.waiting = kept
	c.blocked = blocked
	c.cond.Broadcast()
}

// send moves as much of e as credit allows.
func (c *conn) send(e *entry) {
	n := min(e.rest(), c.flow.backend)
	if e.call != nil {
		n = min(n, e.call.flow.backend)
	}
	n = max(n, 0)
	if n < e.rest() && n == 0 {
		return
	}
	part := e.data[e.off : e.off+int(n)]
	e.off += int(n)
	end := e.end && e.rest() == 0
	c.up.queue(func(q []byte) []byte { return appendData(q, e.stream, part, end) })
	c.flow.backend -= n
	if e.call == nil {
		c.flow.queued -= n
		return
	}
	e.call.flow.backend -= n
	if e.call.state == statePassing {
		e.call.flow.queued -= n
	}
}

// sent ends an entry whose data is out.
func (c *conn) sent(e *entry) {
	if e.call == nil {
		return
	}
	e.call.entry = nil
	e.call.closed = e.call.closed || e.end
	c.unhold(e.call)
}

// drop forgets waiting DATA of a stream that is over. What the client sent is given back by the next grant: it used credit the
// backend never saw.
func (c *conn) drop(stream uint32) {
	if len(c.waiting) == 0 {
		return
	}
	kept := c.waiting[:0]
	for _, e := range c.waiting {
		if e.stream != stream {
			kept = append(kept, e)
			continue
		}
		if e.call == nil {
			c.flow.queued -= e.rest()
		} else {
			e.call.entry = nil
		}
	}
	clear(c.waiting[len(kept):])
	c.waiting = kept
	c.schedule()
}

// grantConn gives the client connection credit it is owed.
func (c *conn) grantConn() {
	if n := c.flow.grant(); n > 0 {
		c.down.queue(func(q []byte) []byte { return appendWindowUpdate(q, 0, n) })
	}
}

// grantStream gives the client credit for an intercepted stream whose end it has not sent.
func (c *conn) grantStream(k *call) {
	if k.clientEnd {
		return
	}
	if n := k.flow.grant(); n > 0 {
		c.down.queue(func(q []byte) []byte { return appendWindowUpdate(q, k.Stream, n) })
	}
}

// queuePlain holds DATA of a stream that is not intercepted.
func (c *conn) queuePlain(stream uint32, data []byte, end bool) {
	c.flow.queued += int64(len(data))
	if last := len(c.waiting) - 1; last >= 0 {
		if e := c.waiting[last]; e.call == nil && e.stream == stream && !e.end {
			e.data = append(e.data, data...)
			e.end = end
			c.schedule()
			return
		}
	}
	c.enqueue(&entry{stream: stream, data: append([]byte(nil), data...), end: end})
}

// waits tells whether DATA of the stream waits.
func (c *conn) waits(stream uint32) bool {
	for _, e := range c.waiting {
		if e.stream == stream {
			return true
		}
	}
	return false
}
