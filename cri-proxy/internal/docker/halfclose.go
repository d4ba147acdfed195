// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"context"
	"net"
	"net/http"
	"time"
)

// connKey finds the client's connection in a request's context.
type connKey struct{}

// halfClosedPoll is how often a client that sends no more is looked at; only such clients are.
const halfClosedPoll = 100 * time.Millisecond

// outlastHalfClose gives the request a context that ends when the client is gone. Go's server ends a request's context
// already when the client half-closes its connection, as scripts with socat or nc do that still wait for the reply.
func outlastHalfClose(r *http.Request) (*http.Request, func()) {
	c, ok := r.Context().Value(connKey{}).(*net.UnixConn)
	if !ok {
		return r, func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	stop := context.AfterFunc(r.Context(), func() {
		tick := time.NewTicker(halfClosedPoll)
		defer tick.Stop()
		for !gone(c) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		cancel()
	})
	return r.WithContext(ctx), func() { stop(); cancel() }
}

// gone reports that the peer has closed its connection, or that we have.
func gone(c *net.UnixConn) bool {
	conn, err := c.SyscallConn()
	if err != nil {
		return true
	}
	hung := true
	_ = conn.Control(func(fd uintptr) { hung = hungUp(fd) }) // its error says that c was closed here
	return hung
}
