// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker/dockertest"
)

// open sends the head of a request and reads that of the reply.
func (r *rig) open(t *testing.T, head string) (*net.UnixConn, *bufio.Reader, *http.Response) {
	t.Helper()
	c, err := dockertest.Dial(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, head); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, br, resp
}

const upgrade = "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"

func TestRawStreams(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		head   string
		status int
	}{
		"upgraded":           {"POST /v1.41/containers/a/attach?stream=1 HTTP/1.1\r\n" + upgrade, 101},
		"not upgraded":       {"POST /containers/a/attach HTTP/1.1\r\nHost: docker\r\nContent-Length: 2\r\n\r\n{}", 200},
		"any path":           {"POST /session HTTP/1.1\r\n" + upgrade, 101},
		"sent with its head": {"POST /session HTTP/1.1\r\n" + upgrade + "early ", 101},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Options{})
			c, br, resp := r.open(t, tt.head)
			if resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != "application/vnd.docker.raw-stream" {
				t.Fatalf("%s %v", resp.Status, resp.Header)
			}
			large := strings.Repeat("x", 1<<20)
			go func() {
				_, _ = io.WriteString(c, large) // the reading below tells whether it arrived
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(br)
			want := "hello "
			if strings.HasSuffix(tt.head, "early ") {
				want += "EARLY "
			}
			if want += strings.ToUpper(large) + " end"; err != nil || string(got) != want {
				t.Errorf("got %d bytes %.40q, %v; want %d", len(got), got, err, len(want))
			}
			<-r.hangups
		})
	}
}

// After an ordinary reply the connection is not joined: the next request on it is decoded.
func TestConnectionAfterARefusedStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.know()
	c, br, resp := r.open(t, "POST /exec/none/start HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 2\r\n\r\n{}")
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 404 || err != nil || !strings.Contains(string(body), "no such exec") {
		t.Fatalf("%s %s, %v", resp.Status, body, err)
	}
	if _, err := fmt.Fprintf(c, "POST /containers/create HTTP/1.1\r\nHost: docker\r\nContent-Length: %d\r\n\r\n%s", len(appBody), appBody); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 201 {
		t.Fatalf("%v, %v", resp, err)
	}
	if calls, _ := r.h.told(); len(calls) != 1 {
		t.Errorf("the handler saw %d requests", len(calls))
	}
}

// Streams that clients drop, also silent ones, end at the daemon, and the proxy forgets them.
func TestDroppedStreamsLeaveNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	const n = 1000
	var wg sync.WaitGroup
	limit := make(chan struct{}, 200) // open at a time while connecting
	conns := make([]*net.UnixConn, n)
	for i := range n {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			c, err := dockertest.Dial(r.socket)
			if err != nil {
				t.Error(err)
				return
			}
			conns[i] = c
			_, err = io.WriteString(c, "POST /containers/a/attach?silent=1 HTTP/1.1\r\n"+upgrade)
			if err == nil {
				_, err = http.ReadResponse(bufio.NewReader(c), nil)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for i, c := range conns {
		if i%2 == 0 {
			_ = c.CloseWrite() // first half, then whole
		}
		_ = c.Close()
	}
	for range n {
		<-r.hangups
	}
	limitAt := time.After(time.Minute)
	for late := false; r.tunnelCount() > 0 && !late; { // the proxy notices a moment after the daemon
		select {
		case <-limitAt:
			late = true
		case <-time.After(time.Millisecond):
		}
	}
	if left := r.tunnelCount(); left > 0 {
		t.Errorf("%d streams are left", left)
	}
}

// A client that goes before a daemon that hangs has answered leaves no connection behind.
func TestStreamDroppedBeforeItsReply(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	c, err := dockertest.Dial(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /containers/a/attach?mute=1 HTTP/1.1\r\n"+upgrade); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(r.requests()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the daemon has not got the request")
		}
	}
	if err := c.CloseWrite(); err != nil { // it may still listen
		t.Fatal(err)
	}
	select {
	case <-r.hangups:
		t.Error("a client that only sends no more was given up")
	case <-time.After(3 * halfClosedPoll):
	}
	c.Close()
	select {
	case <-r.hangups:
	case <-time.After(time.Minute):
		t.Error("the daemon still has a connection")
	}
}

func (r *rig) tunnelCount() int {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	return len(r.proxy.tunnels)
}

// A half-close alone drops nothing: the other direction goes on.
func TestHalfCloseKeepsTheOtherWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	c, br, _ := r.open(t, "POST /containers/a/attach?silent=1 HTTP/1.1\r\n"+upgrade)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := br.Peek(6); string(b) != "hello " || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var ne net.Error
	if _, err := br.Peek(7); !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("the stream has ended: %v", err)
	}
	if r.tunnelCount() != 1 {
		t.Error("the stream is forgotten")
	}
	r.stop() // ends open streams
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := br.Peek(7); !errors.Is(err, io.EOF) {
		t.Errorf("after the end of the proxy: %v", err)
	}
}

// Scripts send a request, say that nothing follows, and wait for the reply.
func TestHalfClosedClientGetsItsReply(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.know()
	c, err := dockertest.Dial(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /events HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.hangups:
		t.Fatal("the daemon lost its client")
	case <-time.After(3 * halfClosedPoll):
	}
	r.release <- struct{}{}
	r.release <- struct{}{}
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "event\nevent\n" {
		t.Errorf("%q, %v", body, err)
	}
	c2, br2, _ := r.open(t, "POST /containers/a/attach HTTP/1.1\r\n"+upgrade)
	_ = c2.CloseWrite()
	if body, err := io.ReadAll(br2); err != nil || string(body) != "hello  end" {
		t.Errorf("attach %q, %v", body, err)
	}
}
