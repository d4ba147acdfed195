// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Limits bound what a connection holds in memory. Zero fields take the default.
type Limits struct {
	// Message is the longest request message that is shown to the Handler, bytes; default 32 MiB.
	Message int
	// Held is what one connection holds of all its intercepted requests, bytes; default 128 MiB.
	Held int
	// Reply is the longest reply message that is copied for Response, bytes; default 1 MiB.
	Reply int
	// Linger is how long the second direction of a connection may go on after the first has ended; default 5 s.
	Linger time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.Message <= 0 {
		l.Message = 32 << 20
	}
	if l.Held <= 0 {
		l.Held = 128 << 20
	}
	if l.Reply <= 0 {
		l.Reply = 1 << 20
	}
	if l.Linger <= 0 {
		l.Linger = 5 * time.Second
	}
	return l
}

// Config is what a Server is made of.
type Config struct {
	// Dial connects to the backend; once per client connection. Required.
	Dial func(ctx context.Context) (net.Conn, error)
	// Route, if not nil, names another backend by the method path of a connection's first call; nil from it is Dial. The backend is dialled
	// when that call comes. A connection stays with one backend: HPACK tables and credit belong to connections.
	Route func(path string) func(ctx context.Context) (net.Conn, error)
	// Handler sees the calls it wants; nil wants none.
	Handler Handler
	// Events, if not nil, is told what an operator may want to know. It must not block.
	Events func(Event)
	Limits Limits
}

// Server relays the connections of its listeners. Each connection costs two goroutines, one for each intercepted call, and at most two
// short-lived ones that write.
type Server struct {
	cfg     Config
	buffers bigBuffers
	base    context.Context
	cancel  context.CancelFunc

	mu        sync.Mutex
	closing   bool
	conns     map[*conn]struct{}
	early     map[net.Conn]struct{} // clients whose first call is awaited, see Config.Route
	listeners map[net.Listener]struct{}
	lastID    uint64
	wg        sync.WaitGroup
}

// New makes a Server.
func New(cfg Config) (*Server, error) {
	if cfg.Dial == nil {
		return nil, errors.New("make relay: no Dial function")
	}
	cfg.Limits = cfg.Limits.withDefaults()
	s := &Server{cfg: cfg, conns: map[*conn]struct{}{}, early: map[net.Conn]struct{}{}, listeners: map[net.Listener]struct{}{}}
	s.base, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Serve relays what ln accepts until ctx ends, then closes ln and every connection at once and returns nil; use Shutdown before for a
// graceful end. It returns an error only when ln fails.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if !s.track(ln) {
		return errors.Join(errors.New("serve: the server was shut down"), ln.Close())
	}
	stop := context.AfterFunc(ctx, s.Close)
	defer stop()
	for {
		nc, err := ln.Accept()
		if err == nil {
			s.start(nc)
			continue
		}
		if s.ended() {
			return nil
		}
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) && !errors.Is(err, syscall.ECONNABORTED) {
			return fmt.Errorf("accept client: %w", err)
		}
		// Out of file descriptors: the client waits in the backlog until one is free.
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *Server) track(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.listeners[ln] = struct{}{}
	return true
}

func (s *Server) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

func (s *Server) start(client net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		_ = client.Close() // the client sees what it would see of a server that is going away
		return
	}
	s.lastID++
	id := s.lastID
	s.wg.Go(func() { s.relay(id, client) })
}

// relay runs one connection to its end.
func (s *Server) relay(id uint64, client net.Conn) {
	first, dial, err := s.first(client)
	if err != nil {
		_ = client.Close()
		return
	}
	backend, err := dial(s.base)
	if err != nil {
		s.event(Event{Kind: EventDial, Conn: id, Err: fmt.Errorf("dial backend: %w", err)})
		_ = client.Close()
		return
	}
	c := newConn(s, id, client, backend)
	c.first, c.spoke = first, s.cfg.Route != nil
	s.mu.Lock()
	s.conns[c] = struct{}{}
	closing := s.closing
	s.mu.Unlock()
	if closing {
		c.goAway()
	}
	if s.base.Err() != nil {
		c.close()
	}
	c.run()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// first is route while the client may be closed by the server's end.
func (s *Server) first(client net.Conn) ([]byte, func(context.Context) (net.Conn, error), error) {
	if s.cfg.Route == nil {
		return nil, s.cfg.Dial, nil
	}
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil, nil, net.ErrClosed
	}
	s.early[client] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.early, client)
		s.mu.Unlock()
	}()
	return s.route(client)
}

// stopAccepting closes the listeners and the clients without a call, and returns the open connections.
func (s *Server) stopAccepting() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for ln := range s.listeners {
		_ = ln.Close()
		delete(s.listeners, ln)
	}
	for client := range s.early {
		_ = client.Close()
	}
	open := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		open = append(open, c)
	}
	return open
}

// Shutdown stops accepting and asks the clients to open no more streams (GOAWAY). Clients close their connection when their last stream has
// ended; what is left when ctx ends is closed, and ctx's error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, c := range s.stopAccepting() {
		c.goAway()
	}
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		s.cancel()
		return nil
	case <-ctx.Done():
		s.Close()
		return ctx.Err()
	}
}

// Close stops accepting and closes every connection at once; it waits for nothing.
func (s *Server) Close() {
	open := s.stopAccepting()
	s.cancel()
	for _, c := range open {
		c.close()
	}
}

// Wait returns when no connection is left and every Handler method has returned.
func (s *Server) Wait() { s.wg.Wait() }

func (s *Server) event(e Event) {
	if s.cfg.Events != nil {
		s.cfg.Events(e)
	}
}
