// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
)

func expectBytes(t *testing.T, c *net.UnixConn, what string, parts ...[]byte) {
	t.Helper()
	want := bytes.Join(parts, nil)
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s:\n got %x\nwant %x: %v", what, got[:n], want, err)
	}
}

// The answer of a rejected call comes after whatever the backend had to say about the stream, and only once.
func TestRejectionOrder(t *testing.T) {
	t.Parallel()
	ack := appendFrameHeader(nil, 0, frameSettings, flagAck, 0)
	response := append(appendFrameHeader(nil, 1, frameHeaders, flagEndHeaders, 1), 0x88)
	trailers := append(appendFrameHeader(nil, 1, frameHeaders, flagEndHeaders|flagEndStream, 1), 0x88)
	no := &Rejection{Code: 9, Message: "no"}
	ping := append(appendFrameHeader(nil, 8, 0x6, 0, 0), "12345678"...)
	for _, tc := range []struct {
		name             string
		backend, forward []byte
	}{
		{"nothing said", nil, appendRejection(nil, 1, no, false)},
		{"response headers on their way", response, append(bytes.Clone(response), appendRejection(nil, 1, no, true)...)},
		{"reset on its way", appendReset(nil, 1, 0), appendRejection(nil, 1, no, false)},
		{"ended by the backend", trailers, trailers},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWire(t, Config{Handler: wantAll{all}})
			defer w.finish(t)
			request := append(hello(), headersFrame(1, "/a", 0)...)
			send := func(c *net.UnixConn, parts ...[]byte) {
				if _, err := c.Write(bytes.Join(parts, nil)); err != nil {
					t.Fatal(err)
				}
			}
			send(w.client, request, appendData(nil, 1, message("\x02"), true))
			expectBytes(t, w.backend, "request", request, appendReset(nil, 1, codeCancel), appendSettings(nil))
			send(w.client, appendSettings(nil)) // acknowledged after the barrier
			expectBytes(t, w.backend, "second settings", appendSettings(nil))
			send(w.backend, appendSettings(nil), ack, tc.backend, ack, ack, ping)
			expectBytes(t, w.client, "answer", appendSettings(nil), ack, tc.forward, ack, ping)
		})
	}
}

func TestRejectionIsValid(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ö", maxRejectMessage)
	frame := appendRejection(nil, 7, &Rejection{Code: 3, Message: long}, false)
	h := parseFrameHeader(frame)
	if h.length != len(frame)-headerLen || h.length > maxDataPayload || h.stream != 7 {
		t.Fatalf("header %+v of %d bytes", h, len(frame))
	}
	d := hpack.NewDecoder(0, nil)
	fields, err := d.DecodeFull(frame[headerLen:])
	if err != nil || len(fields) != 4 {
		t.Fatalf("%d fields: %v", len(fields), err)
	}
	if fields[2].Value != "3" || decodeMessage(fields[3].Value) != long[:maxRejectMessage] {
		t.Fatalf("fields %v", fields[:3])
	}
}

func TestParseTimeout(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{"1H": time.Hour, "2M": 2 * time.Minute, "3S": 3 * time.Second, "4m": 4 * time.Millisecond,
		"5u": 5 * time.Microsecond, "99999999n": 99999999} {
		if d, ok := parseTimeout(s); !ok || d != want {
			t.Errorf("%s: %v %v", s, d, ok)
		}
	}
	for _, s := range []string{"", "S", "1", "1x", "-1S", "123456789S", "99999999H"} {
		if d, ok := parseTimeout(s); ok {
			t.Errorf("%q: %v", s, d)
		}
	}
}

// BenchmarkWire measures what carries the bytes, without gRPC ends: a 214 KB reply in 16 KiB frames to a small request.
func BenchmarkWire(b *testing.B) {
	request := append(headersFrame(1, "/a", 0), appendData(nil, 1, message("x"), true)...)
	reply := append(append(appendFrameHeader(nil, 1, frameHeaders, flagEndHeaders, 1), 0x88), appendData(nil, 1, make([]byte, 214<<10), false)...)
	reply = append(append(reply, appendFrameHeader(nil, 1, frameHeaders, flagEndHeaders|flagEndStream, 1)...), 0x88)
	for _, bc := range []struct {
		name  string
		carry func() (client, backend *net.UnixConn)
	}{
		{"direct", func() (c, s *net.UnixConn) { return socketPair(b) }},
		{"bytes", func() (c, s *net.UnixConn) {
			client, near := socketPair(b)
			far, backend := socketPair(b)
			b.Cleanup(func() { _ = client.Close(); _ = backend.Close() })
			pipe := func(dst, src net.Conn) {
				_, _ = io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, bigBuffer))
				_ = dst.Close()
			}
			go pipe(far, near)
			go pipe(near, far)
			return client, backend
		}},
		{"relay", func() (c, s *net.UnixConn) {
			w := newWire(b, Config{Handler: wantAll{none}})
			b.Cleanup(func() { w.finish(b) })
			return w.client, w.backend
		}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			client, backend := bc.carry()
			defer backend.Close()
			defer client.Close()
			open := hello()
			go answer(backend, len(open), len(request), reply)
			if _, err := client.Write(open); err != nil {
				b.Fatal(err)
			}
			got := make([]byte, len(reply)+headerLen+4)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.Write(request); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(client, got); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// answer is the far end of BenchmarkWire: for each request the reply, written as a gRPC server does, and the request's credit.
func answer(backend net.Conn, skip, request int, reply []byte) {
	if _, err := io.ReadFull(backend, make([]byte, skip)); err != nil {
		return
	}
	buf := make([]byte, request)
	for {
		if _, err := io.ReadFull(backend, buf); err != nil {
			return
		}
		for p := reply; len(p) > 0; p = p[min(len(p), 32<<10):] {
			if _, err := backend.Write(p[:min(len(p), 32<<10)]); err != nil {
				return
			}
		}
		if _, err := backend.Write(appendWindowUpdate(nil, 0, int64(len(message("x"))))); err != nil {
			return
		}
	}
}

func TestClosedServerRefuses(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Dial: func(context.Context) (net.Conn, error) { return nil, io.EOF }})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	near, far := socketPair(t)
	defer far.Close()
	s.start(near)
	if _, err := far.Read(make([]byte, 1)); err == nil {
		t.Fatal("the connection stayed open")
	}
}
