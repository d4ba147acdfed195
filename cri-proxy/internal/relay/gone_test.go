// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
)

// slowWriter is a client's connection on which the write that ends a call returns only when the relay has noticed the client's end.
type slowWriter struct {
	*net.UnixConn
	noticed <-chan struct{}
	rest    []byte // of the frames written so far
}

// Write implements net.Conn.
func (w *slowWriter) Write(b []byte) (int, error) {
	n, err := w.UnixConn.Write(b)
	w.rest = append(w.rest, b[:n]...)
	for len(w.rest) >= 9 {
		size := 9 + int(w.rest[0])<<16 + int(w.rest[1])<<8 + int(w.rest[2])
		if len(w.rest) < size {
			break
		}
		const headers, endStream = 1, 1
		ends := w.rest[3] == headers && w.rest[4]&endStream != 0
		if w.rest = w.rest[size:]; ends {
			<-w.noticed
		}
	}
	return n, err
}

type slowListener struct {
	net.Listener
	noticed <-chan struct{}
}

// Accept implements net.Listener.
func (l slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &slowWriter{UnixConn: c.(*net.UnixConn), noticed: l.noticed}, nil
}

// closedWriter is a backend's connection that tells of the end of what is sent to it: the client's end has been noticed then.
type closedWriter struct {
	*net.UnixConn
	closed func()
}

// CloseWrite ends what is sent.
func (w closedWriter) CloseWrite() error {
	w.closed()
	return w.UnixConn.CloseWrite()
}

// A client that goes the moment it has its answer, as each command of crictl does, has had that answer: the call is no lost one.
func TestClientGoesWithItsAnswer(t *testing.T) {
	t.Parallel()
	b := startBackend(t, filepath.Join(shortDir(t), "b"))
	noticed := make(chan struct{})
	var once sync.Once
	h := &handler{}
	_, path := startRelayOn(t, relay.Config{Handler: h, Dial: func(ctx context.Context) (net.Conn, error) {
		c, err := dialUnix(b.path)(ctx)
		if err != nil {
			return nil, err
		}
		return closedWriter{c.(*net.UnixConn), func() { once.Do(func() { close(noticed) }) }}, nil
	}}, func(ln net.Listener) net.Listener { return slowListener{ln, noticed} })
	c := dial(t, path)
	if out, err := invoke(short(t), c, "WantEcho", []byte("hello")); err != nil || string(out) != "hello" {
		t.Fatalf("%q, %v", out, err)
	}
	_ = c.Close()
	if r := h.lastResult(t, 1); r.Err != nil || r.Code != 0 || string(r.Reply) != "hello" {
		t.Errorf("result %+v", r)
	}
}
