// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package dockertest is the two ends of a proxy in tests: a daemon of the test's own behind a Unix socket, and a client of
// Docker's API at another.
//
// Inputs are the daemon's handler and the paths of the sockets; outputs are replies. It is imported by tests only and imports
// the standard library.
package dockertest

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// Dir is a directory for sockets. t.TempDir's names are too long for one.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dk")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// Serve is a daemon's life at a socket, in the place of what an earlier life has left there. It ends with the test, or when
// it is closed.
func Serve(t testing.TB, socket string, daemon http.Handler) *http.Server {
	t.Helper()
	must(t, os.RemoveAll(socket))
	l, err := net.Listen("unix", socket)
	must(t, err)
	srv := &http.Server{Handler: daemon}
	go func() { _ = srv.Serve(l) }() // until Close
	t.Cleanup(func() { _ = srv.Close() })
	return srv
}

// Dial is a connection to a socket.
func Dial(socket string) (*net.UnixConn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
}

// Client asks whoever listens at a socket, whatever host its requests name.
func Client(t testing.TB, socket string) *http.Client {
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return Dial(socket) }}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// Do sends a request and returns the reply's status and text.
func Do(t testing.TB, c *http.Client, method, path string, body io.Reader) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://docker"+path, body)
	must(t, err)
	resp, err := c.Do(req)
	must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(data)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
