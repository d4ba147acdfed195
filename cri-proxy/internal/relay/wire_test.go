// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
)

type wantAll struct{ yes func(string) bool }

func (w wantAll) Wants(path string) bool                               { return w.yes(path) }
func (wantAll) Request(_ context.Context, c *Call, msg []byte) Verdict { return verdictFor(msg) }
func (wantAll) Opaque(*Call, Opaque)                                   {}
func (wantAll) Response(context.Context, *Call, Result)                {}

// verdictFor uses the first byte of a message to reach every kind of verdict.
func verdictFor(msg []byte) Verdict {
	switch {
	case len(msg) > 0 && msg[0]%4 == 1:
		return Verdict{Message: bytes.Repeat(msg, 3)}
	case len(msg) > 0 && msg[0]%4 == 2:
		return Verdict{Reject: &Rejection{Code: 9, Message: "no"}}
	case len(msg) > 0 && msg[0]%4 == 3:
		panic("as told")
	}
	return Verdict{}
}

func none(string) bool { return false }
func all(string) bool  { return true }

func socketPair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]*net.UnixConn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// wire is one relayed connection with both far ends in the test's hands.
type wire struct {
	client, backend *net.UnixConn
	conn            *conn
	done            chan struct{}
}

func newWire(t testing.TB, cfg Config) *wire {
	t.Helper()
	cfg.Dial = func(context.Context) (net.Conn, error) { return nil, io.EOF }
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{done: make(chan struct{})}
	var near, far *net.UnixConn
	w.client, near = socketPair(t)
	far, w.backend = socketPair(t)
	w.conn = newConn(s, 1, near, far)
	go func() {
		w.conn.run()
		close(w.done)
	}()
	return w
}

// finish closes the far ends and waits for the relay.
func (w *wire) finish(t testing.TB) {
	t.Helper()
	_ = w.client.Close()
	_ = w.backend.Close()
	select {
	case <-w.done:
	case <-time.After(time.Minute):
		t.Fatal("the relay hangs")
	}
}

func headersFrame(stream uint32, path string, flags byte) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path}, {"te", "trailers"}, {"grpc-timeout", "60S"}} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			panic(err)
		}
	}
	return append(appendFrameHeader(nil, b.Len(), frameHeaders, flagEndHeaders|flags, stream), b.Bytes()...)
}

func hello() []byte { return appendSettings([]byte(preface)) }

func message(payload string) []byte {
	return append([]byte{0, 0, 0, byte(len(payload) >> 8), byte(len(payload))}, payload...)
}

// both sends client and backend bytes through a relay, each cut in two, and returns what the other ends got.
func both(t testing.TB, yes func(string) bool, linger time.Duration, fromClient, fromBackend []byte) (atBackend, atClient []byte) {
	t.Helper()
	w := newWire(t, Config{Handler: wantAll{yes}, Limits: Limits{Linger: linger}})
	var wg sync.WaitGroup
	end := time.Now().Add(time.Minute)
	move := func(c *net.UnixConn, send []byte, got *[]byte) {
		wg.Go(func() {
			_ = c.SetDeadline(end)
			half := len(send) / 2
			// A write fails when the relay has closed; what was read tells whether that was right.
			_, _ = c.Write(send[:half])
			_, _ = c.Write(send[half:])
			_ = c.CloseWrite()
		})
		wg.Go(func() {
			b, err := io.ReadAll(c)
			if err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("read: %v", err)
			}
			*got = b
		})
	}
	move(w.client, fromClient, &atClient)
	move(w.backend, fromBackend, &atBackend)
	wg.Wait()
	w.finish(t)
	return atBackend, atClient
}

func seeds() [][]byte {
	start := append(hello(), headersFrame(1, "/t.S/A", 0)...)
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	padded := append(appendFrameHeader(nil, 10, frameData, flagPadded|flagEndStream, 1), append([]byte{1}, append(message("abc"), 0)...)...)
	return [][]byte{
		nil, []byte("GET / HTTP/1.1\r\n\r\n"), hello(), start,
		cat(start, appendData(nil, 1, message("\x00x"), true)),
		cat(start, appendData(nil, 1, message("\x01x"), true), headersFrame(3, "/t.S/B", 0), appendData(nil, 3, message("\x03"), true)),
		cat(start, appendData(nil, 1, message("\x02x"), true)),
		cat(start, padded), cat(start, appendFrameHeader(nil, 3, frameData, flagPadded, 1), []byte{200, 1, 2}),
		cat(start, appendData(nil, 1, message("half"), false), headersFrame(1, "", flagEndStream)),
		cat(start, appendData(nil, 1, message("half"), false), appendReset(nil, 1, 8)),
		cat(start, appendFrameHeader(nil, 5, frameContinuation, 0, 1)),
		cat(start, appendFrameHeader(nil, 4, frameHeaders, 0, 3), []byte{0x82, 0x40, 0x7f, 0xff}, appendFrameHeader(nil, 0, 0x77, 0, 9)),
		cat(start, appendFrameHeader(nil, 3, frameHeaders, flagEndHeaders, 3), []byte{0xff, 0xff, 0xff}),
		cat(start, appendFrameHeader(nil, 1<<22, frameHeaders, 0, 3)), cat(start, appendFrameHeader(nil, 5, frameSettings, 0, 0), make([]byte, 5)),
		cat(start, appendData(nil, 1, make([]byte, 70000), true)), cat(start, appendFrameHeader(nil, 1000, frameData, 0, 1), make([]byte, 10)),
		cat(start, appendFrameHeader(nil, 0, frameSettings, flagAck, 0), appendWindowUpdate(nil, 0, 5), appendGoAway(nil)),
	}
}

func checkClientBytes(t *testing.T, data []byte) {
	if got, _ := both(t, none, 5*time.Second, data, nil); !bytes.Equal(got, data) {
		t.Fatalf("forwarded %d bytes %x, sent %d bytes %x", len(got), got, len(data), data)
	}
	both(t, all, 20*time.Millisecond, data, appendSettings(nil))
}

func checkServerBytes(t *testing.T, data []byte) {
	client := append(append(hello(), headersFrame(1, "/t.S/A", 0)...), appendData(nil, 1, message("\x00abc"), true)...)
	if _, got := both(t, none, 5*time.Second, client, data); !bytes.Equal(got, data) {
		t.Fatalf("forwarded %d bytes %x, sent %d bytes %x", len(got), got, len(data), data)
	}
	both(t, all, 20*time.Millisecond, client, data)
}

func FuzzClientBytes(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(checkClientBytes)
}

func FuzzServerBytes(f *testing.F) {
	for _, s := range seeds() {
		f.Add(bytes.TrimPrefix(s, []byte(preface)))
	}
	f.Add(appendRejection(appendSettings(nil), 1, &Rejection{Code: 5, Message: "x"}, false))
	f.Add(append(append(appendSettings(nil), appendData(nil, 1, message("r"), false)...), headersFrame(1, "", flagEndStream)...))
	f.Fuzz(checkServerBytes)
}

// FuzzFirst: whatever a client begins with is read up to some point and kept as it came.
func FuzzFirst(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first, path, err := readFirst(bytes.NewReader(data))
		if !bytes.HasPrefix(data, first) || err != nil && (len(first) != len(data) || path != "") {
			t.Fatalf("%d of %d bytes, %q, %v", len(first), len(data), path, err)
		}
		if start := append(hello(), headersFrame(1, "/t.S/A", 0)...); bytes.HasPrefix(data, start) && (path != "/t.S/A" || len(first) != len(start)) {
			t.Fatalf("a connection that begins with a call: %d bytes, %q", len(first), path)
		}
	})
}

// FuzzMessage: a status message of a runtime's is never longer than what it sent, and what is encoded is read back as far as a rejection goes.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{"", "no such container", "100 %", "%", "%4", "%zz%41", "%25", "größer\n\x00\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := decodeMessage(s); len(got) > len(s) || !strings.Contains(s, "%") && got != s {
			t.Errorf("%q is read as %q", s, got)
		}
		if got, want := decodeMessage(encodeMessage(s)), s[:min(len(s), maxRejectMessage)]; got != want {
			t.Errorf("%q, encoded, is read as %q", want, got)
		}
	})
}

func FuzzMethodName(f *testing.F) {
	for _, s := range []string{"/runtime.v1.RuntimeService/CreateContainer", "", "/", "\x00", "/ö/%", strings.Repeat("/x", 5000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if len(path) > 60000 {
			return // the frame would be longer than its length field in this helper's single HEADERS may say
		}
		data := append(append(hello(), headersFrame(1, path, 0)...), appendData(nil, 1, message("\x00"), true)...)
		var mu sync.Mutex
		var asked []string
		record := func(p string) bool {
			mu.Lock()
			asked = append(asked, p)
			mu.Unlock()
			return false
		}
		got, _ := both(t, record, 5*time.Second, data, nil)
		if !bytes.Equal(got, data) {
			t.Fatalf("not forwarded as it came")
		}
		if path != "" && (len(asked) != 1 || asked[0] != path) {
			t.Fatalf("asked for %q, sent %q", asked, path)
		}
	})
}

func TestNoAllocationPerDataFrame(t *testing.T) {
	s, err := New(Config{Dial: func(context.Context) (net.Conn, error) { return nil, io.EOF }})
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(s, 1, discard{}, discard{})
	c.flow = balance{backend: 1 << 40, client: 1 << 40}
	frames := appendData(nil, 1, make([]byte, 3*maxDataPayload), false)
	up, down := newPump(c, discard{}, c.up), newPump(c, discard{}, c.down)
	up.side, down.side = &upSide{c: c, p: up}, &downSide{c: c, p: down}
	for name, p := range map[string]*pump{"up": up, "down": down} {
		p.swap(nil, make([]byte, bigBuffer))
		if n := testing.AllocsPerRun(1000, func() {
			p.n = copy(p.buf, frames)
			if err := p.walk(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for three DATA frames", name, n)
		}
	}
}

type discard struct{ net.Conn }

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }
