// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
)

// twoBackends is a relay that sends connections whose first call is a Hash elsewhere.
func twoBackends(t *testing.T, opts ...grpc.ServerOption) (one, other *backend, server *relay.Server, front string, events chan relay.Event) {
	t.Helper()
	one, other = startBackend(t, filepath.Join(shortDir(t), "b"), opts...), startBackend(t, filepath.Join(shortDir(t), "b"), opts...)
	events = make(chan relay.Event, 100)
	server, front = startRelay(t, relay.Config{
		Dial: dialUnix(one.path), Handler: &handler{}, Events: func(e relay.Event) { events <- e },
		Route: func(path string) func(context.Context) (net.Conn, error) {
			if strings.HasSuffix(path, "Hash") {
				return dialUnix(other.path)
			}
			return nil
		},
	})
	return one, other, server, front, events
}

// A connection goes where its first call belongs, and from then on is like any other.
func TestRoutedSameAsDirect(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]grpc.ServerOption{
		"defaults": nil, "no table": {grpc.HeaderTableSize(0)}, "large table": {grpc.HeaderTableSize(1 << 17)},
		"large windows": {grpc.MaxConcurrentStreams(1), grpc.InitialWindowSize(1 << 20), grpc.InitialConnWindowSize(1 << 20)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, other, _, front, events := twoBackends(t, opts...)
			ctx := metadata.AppendToOutgoingContext(short(t), "x-a", "1", "x-long", strings.Repeat("y", 9000))
			for _, tt := range []struct {
				first     string
				to, notTo *backend
				sent      int
			}{{"Echo", one, other, 9}, {"Hash", other, one, 70 << 10}, {"WantHash", other, one, 150 << 10}, {"WantEcho", one, other, 1}} {
				were, elsewhere := tt.to.seen.Load(), tt.notTo.seen.Load()
				through, direct := dial(t, front), dial(t, tt.to.path)
				in := bytes.Repeat([]byte("i"), tt.sent)
				for i, method := range []string{tt.first, "Meta", "WantMeta", "WantFail", "NoSuchMethod", "WantHash", "WantEcho", "Echo"} {
					if got, want := transcript(ctx, through, method, in), transcript(ctx, direct, method, in); got != want {
						t.Errorf("%s after %s:\n got %.300s\nwant %.300s", method, tt.first, got, want)
					}
					if i == 0 && tt.to.seen.Load() != were+2 {
						t.Errorf("%s reached the wrong backend", method)
					}
				}
				if n := tt.notTo.seen.Load() - elsewhere; n != 0 {
					t.Errorf("%d calls of a connection that began with %s went elsewhere", n, tt.first)
				}
			}
			select {
			case e := <-events:
				t.Errorf("event %s: %v", e.Kind, e.Err)
			default:
			}
		})
	}
}

// The backend hears exactly what it has to acknowledge and be acknowledged; a client may send its first call before it has read anything.
func TestRoutedSettings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "b")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, front := startRelay(t, relay.Config{
		Dial:  dialUnix("/nowhere"),
		Route: func(string) func(context.Context) (net.Conn, error) { return dialUnix(path) },
	})
	client, fr := rawClient(t, front)
	defer client.Close()
	end := time.Now().Add(time.Minute)
	if err := client.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	// The acknowledgement of the relay's SETTINGS comes behind the call, in the same breath as that of the backend's.
	if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t, "/t.S/Echo"), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(nc, make([]byte, len(http2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	back := http2.NewFramer(nc, nc)
	if err := back.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 70000}); err != nil {
		t.Fatal(err)
	}
	for _, values := range []int{0, 1} {
		f, err := fr.ReadFrame()
		s, ok := f.(*http2.SettingsFrame)
		if err != nil || !ok || s.IsAck() || s.NumSettings() != values {
			t.Fatalf("the client got %v, %v; want SETTINGS with %d values", f, err, values)
		}
		if err := fr.WriteSettingsAck(); err != nil {
			t.Fatal(err)
		}
	}
	if err := fr.WritePing(false, [8]byte{1}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 4 {
		f, err := back.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		kind := f.Header().Type.String()
		if s, ok := f.(*http2.SettingsFrame); ok && s.IsAck() {
			kind += " ACK"
		}
		got = append(got, kind)
	}
	if want := "SETTINGS HEADERS SETTINGS ACK PING"; strings.Join(got, " ") != want {
		t.Errorf("the backend got %v, want %s", got, want)
	}
}

// What names no call is the first backend's: a client that asks for a sign of life before its first call, or that speaks something else.
func TestRouteWithoutCall(t *testing.T) {
	t.Parallel()
	one, _, _, front, events := twoBackends(t)
	client, fr := rawClient(t, front)
	defer client.Close()
	if err := fr.WritePing(false, [8]byte{7}); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := f.(*http2.PingFrame); ok {
			if !p.IsAck() || p.Data != [8]byte{7} {
				t.Errorf("got %v", p)
			}
			break
		}
	}
	web, err := net.Dial("unix", front)
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	if _, err := io.WriteString(web, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(web); err != nil { // the backend hangs up
		t.Error(err)
	}
	if e := <-events; e.Kind != relay.EventBlind {
		t.Errorf("event %+v", e)
	}
	if out, err := invoke(short(t), dial(t, front), "Echo", []byte("x")); err != nil || string(out) != "x" || one.seen.Load() != 1 {
		t.Errorf("%q, %v", out, err)
	}
}

// A backend that is away closes the client, as without routing; a client without a call does not hold up the end.
func TestRouteEnds(t *testing.T) {
	t.Parallel()
	_, other, server, front, events := twoBackends(t)
	other.srv.Stop()
	if _, err := invoke(short(t), dial(t, front), "Hash", nil); err == nil {
		t.Error("a call without a backend succeeded")
	}
	if e := <-events; e.Kind != relay.EventDial {
		t.Errorf("event %+v", e)
	}
	idle, fr := rawClient(t, front)
	defer idle.Close()
	if f, err := fr.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
		t.Fatalf("%v, %v", f, err)
	}
	gone, _ := rawClient(t, front)
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(short(t))
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("shut down: %v", err)
	}
	if _, err := fr.ReadFrame(); err == nil {
		t.Error("a client without a call is still connected")
	}
}
