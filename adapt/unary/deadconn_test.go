// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package unary

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// lost is a connection whose server has gone unnoticed, once dead is set: nothing is heard of that, and what is written meets nobody.
type lost struct {
	net.Conn
	dead *atomic.Bool
}

func (l lost) Write(p []byte) (int, error) {
	if l.dead.Load() {
		return 0, &net.OpError{Op: "write", Net: "unix", Err: syscall.EPIPE}
	}
	return l.Conn.Write(p)
}

// A call that meets a connection without a server, before anything of its message is sent, is made on another one; where that is no better, its
// error is told.
func TestConnectionThatIsLost(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	calls := 0
	s := &http.Server{Protocols: &protocols, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		in, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = w.Write(in)
		w.Header().Set("Grpc-Status", "0")
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })

	c := New("unix", path, 100)
	t.Cleanup(c.Close)
	var dead, all atomic.Bool
	dials := 0
	c.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials++
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if dials == 1 {
			return lost{conn, &dead}, err
		}
		return lost{conn, &all}, err
	}
	call := func() (string, error) {
		out, err := c.Call(t.Context(), "/a.B/C", []byte("x"))
		return string(out), err
	}
	for range 2 {
		if out, err := call(); out != "x" || err != nil {
			t.Errorf("%q, %v after %d dials", out, err, dials)
		}
		dead.Store(true)
	}
	if calls != 2 || dials != 2 {
		t.Errorf("%d calls by %d dials", calls, dials)
	}
	all.Store(true)
	if _, err := call(); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("nobody is there: %v", err)
	}
}
