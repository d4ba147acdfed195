// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one client connection and its backend connection.
type conn struct {
	srv             *Server
	id              uint64
	client, backend net.Conn
	up, down        *out // to the backend, to the client
	upHeaders       *headerReader
	downHeaders     *headerReader

	// first was read of the client before the backend was known. spoke: the relay's own SETTINGS came first, and the acknowledgement of them
	// is not the backend's; it belongs to the pump that reads the client.
	first []byte
	spoke bool

	blind  atomic.Bool
	active atomic.Int32 // len(calls), read without mu

	mu      sync.Mutex
	cond    *sync.Cond // waiting became shorter, a call was decided or ended, or the connection ended
	closed  bool
	linger  *time.Timer
	flow    balance
	initWin int64   // the backend's SETTINGS_INITIAL_WINDOW_SIZE as the client has acknowledged it
	inits   []int64 // those of the SETTINGS frames not yet acknowledged; -1: not in it
	settled bool    // the backend's first SETTINGS has passed
	acks    []*call // whose the backend's next acknowledgements are; nil: the client's
	calls   map[uint32]*call
	waiting []*entry
	blocked bool // waiting DATA lacks credit of the connection
	held    int  // bytes of intercepted requests
	callers sync.WaitGroup
}

func newConn(s *Server, id uint64, client, backend net.Conn) *conn {
	c := &conn{
		srv: s, id: id, client: client, backend: backend,
		upHeaders: newHeaderReader(), downHeaders: newHeaderReader(),
		flow:    balance{backend: initialWindow, client: initialWindow},
		initWin: initialWindow,
		calls:   map[uint32]*call{},
	}
	c.cond = sync.NewCond(&c.mu)
	c.up = &out{w: backend, failed: c.close, mark: c.markBarrier}
	c.down = &out{w: client, failed: c.close}
	return c
}

// run moves both directions until they have ended.
func (c *conn) run() {
	up := newPump(c, &begun{Conn: c.client, rest: c.first}, c.up)
	c.first = nil
	up.preface = len(preface)
	up.side = &upSide{c: c, p: up}
	down := newPump(c, c.backend, c.down)
	down.side = &downSide{c: c, p: down}

	var second sync.WaitGroup
	second.Go(func() { c.ended(down.run(), c.down) })
	c.ended(up.run(), c.up)
	second.Wait()
	c.close()
	c.callers.Wait()
}

// ended is called by each pump at its end. After EOF the other direction may go on for a while.
func (c *conn) ended(err error, o *out) {
	if err != nil {
		c.close()
		return
	}
	c.mu.Lock()
	if c.linger == nil && !c.closed {
		c.linger = time.AfterFunc(c.srv.cfg.Limits.Linger, c.close)
	}
	c.endCalls(ErrGone)
	c.mu.Unlock()
	o.closeWrite()
}

// close ends both connections and everything that waits on them.
func (c *conn) close() {
	c.mu.Lock()
	if c.linger != nil {
		c.linger.Stop()
	}
	c.closed = true
	c.endCalls(ErrGone)
	c.cond.Broadcast()
	c.mu.Unlock()
	// Errors of Close have no consequence: nobody reads or writes any more.
	_ = c.client.Close()
	_ = c.backend.Close()
}

// goAway asks the client to open no more streams; before the backend's SETTINGS nothing may be said.
func (c *conn) goAway() {
	c.mu.Lock()
	settled := c.settled
	c.mu.Unlock()
	if !settled || c.blind.Load() {
		c.close()
		return
	}
	c.down.queue(appendGoAway)
	c.down.kick()
}

// markBarrier runs right before the SETTINGS frame of a rejected call is written.
func (c *conn) markBarrier(k *call) {
	c.mu.Lock()
	c.acks = append(c.acks, k)
	c.mu.Unlock()
}

// goBlind stops interception: held and waiting bytes go out as they came, without regard to credit; the ends will find what is wrong.
func (c *conn) goBlind(cause error) {
	c.mu.Lock()
	if c.blind.Load() {
		c.mu.Unlock()
		return
	}
	c.blind.Store(true)
	for _, e := range c.waiting {
		rest, end := e.data[e.off:], e.end
		c.up.queue(func(q []byte) []byte { return appendData(q, e.stream, rest, end) })
	}
	c.waiting = nil
	for _, k := range c.calls {
		if k.state == stateCollecting || k.state == stateDeciding {
			c.up.queue(func(q []byte) []byte { return appendData(q, k.Stream, k.held, k.clientEnd) })
		}
	}
	c.endCalls(ErrBlind)
	c.cond.Broadcast()
	c.mu.Unlock()
	c.srv.event(Event{Kind: EventBlind, Conn: c.id, Err: cause})
	c.up.kick()
}
