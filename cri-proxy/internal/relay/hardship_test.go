// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
)

func TestCompressedRequestPasses(t *testing.T) {
	t.Parallel()
	h := &handler{request: func(context.Context, *relay.Call, []byte) relay.Verdict {
		return relay.Verdict{Message: []byte("must not happen")}
	}}
	l := newLab(t, h, relay.Limits{})
	for i, size := range []int{100, 5 << 20} {
		in := bytes.Repeat([]byte("abcdefgh"), size/8)
		if out, err := invoke(short(t), l.conn, "WantEcho", in, grpc.UseCompressor(gzip.Name)); err != nil || !bytes.Equal(out, in) {
			t.Fatalf("%d bytes: %d %v", size, len(out), err)
		}
		if r := h.lastResult(t, i+1); r.Code != 0 || r.Reply != nil {
			t.Fatalf("result of a compressed reply: %+v", r)
		}
	}
	if len(h.opaque) != 2 || h.opaque[0] != relay.OpaqueCompressed {
		t.Fatalf("opaque %v", h.opaque)
	}
}

func TestHeldLimit(t *testing.T) {
	t.Parallel()
	h := &handler{}
	l := newLab(t, h, relay.Limits{Message: 1 << 20, Held: 2 << 20})
	in := bytes.Repeat([]byte("h"), 900<<10)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if out, err := invoke(short(t), l.conn, "WantHash", in); err != nil || !bytes.Equal(out, sumOf(in)) {
				t.Errorf("%x %v", out, err)
			}
		})
	}
	wg.Wait()
	h.lastResult(t, 16)
	l.noEvents(t)
}

func TestNoBackendClosesClient(t *testing.T) {
	t.Parallel()
	events := make(chan relay.Event, 10)
	_, front := startRelay(t, relay.Config{Dial: dialUnix(filepath.Join(shortDir(t), "absent")), Events: func(e relay.Event) { events <- e }})
	c, err := net.Dial("unix", front)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("the connection stayed open")
	}
	if e := <-events; e.Kind != relay.EventDial || e.Err == nil {
		t.Fatalf("event %+v", e)
	}
}

// rawClient speaks frames to the relay.
func rawClient(t *testing.T, path string) (*net.UnixConn, *http2.Framer) {
	t.Helper()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	fr := http2.NewFramer(nc, nc)
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := fr.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return nc.(*net.UnixConn), fr
}

func block(t *testing.T, path string) []byte {
	t.Helper()
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func resources(t testing.TB) (goroutines, fds int) {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return runtime.NumGoroutine(), len(e)
}

// Not parallel: it counts what the whole process holds.
func TestNothingLeaks(t *testing.T) {
	var stuck atomic.Int64
	h := &handler{request: func(ctx context.Context, c *relay.Call, msg []byte) relay.Verdict {
		if msg[0] == 1 && c.Path == "/t.S/WantEcho" {
			stuck.Add(1)
			<-ctx.Done()
		}
		return relay.Verdict{}
	}}
	l := newLab(t, h, relay.Limits{Linger: 200 * time.Millisecond})
	if _, err := invoke(short(t), l.conn, "WantEcho", []byte("warm")); err != nil {
		t.Fatal(err)
	}
	g0, f0 := resources(t)
	for range 3 {
		dropStreams(t, l, &stuck)
	}
	for range 20 {
		dropMidMessage(t, l)
		stopReading(t, l)
	}
	eventually(t, func() bool { g, f := resources(t); return g <= g0 && f <= f0 })
	if out, err := invoke(short(t), l.conn, "WantEcho", []byte("after")); err != nil || string(out) != "after" {
		t.Fatalf("%s %v", out, err)
	}
	l.noEvents(t)
}

// dropStreams opens 1,000 streams on four connections and cancels half of them, then closes the connections.
func dropStreams(t *testing.T, l *lab, stuck *atomic.Int64) {
	t.Helper()
	waiting, held := l.waitOn.Load(), stuck.Load()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(short(t))
	defer cancel()
	var conns []*grpc.ClientConn
	for range 4 {
		c := dial(t, l.path)
		conns = append(conns, c)
		for i := range 250 {
			mine := ctx
			if i%2 == 0 {
				mine = short(t)
			}
			wg.Go(func() {
				method := []string{"Wait", "WantWait", "WantEcho", "WantBidi"}[i%4]
				if method == "WantBidi" {
					if s, err := c.NewStream(mine, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/t.S/WantBidi"); err == nil {
						var out []byte
						if err := s.RecvMsg(&out); err == nil {
							t.Error("a message from nowhere")
						}
					}
					return
				}
				if _, err := invoke(mine, c, method, []byte{1}); err == nil {
					t.Errorf("%s ended well", method)
				}
			})
		}
	}
	eventually(t, func() bool { return l.waitOn.Load() >= waiting+500 && stuck.Load() >= held+248 })
	cancel()
	for _, c := range conns {
		_ = c.Close()
	}
	wg.Wait()
}

// dropMidMessage announces a message, sends half of it and goes away.
func dropMidMessage(t *testing.T, l *lab) {
	t.Helper()
	nc, fr := rawClient(t, l.path)
	defer nc.Close()
	if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t, "/t.S/WantEcho"), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	if err := fr.WriteData(1, false, append([]byte{0, 0, 0, 100, 0}, make([]byte, 9000)...)); err != nil {
		t.Fatal(err)
	}
}

// stopReading asks for a long answer, reads none of it, and goes away while the relay is stuck writing; others are not hurt.
func stopReading(t *testing.T, l *lab) {
	t.Helper()
	nc, fr := rawClient(t, l.path)
	defer nc.Close()
	if err := fr.WriteWindowUpdate(0, 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t, "/t.S/Count"), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	if err := fr.WriteWindowUpdate(1, 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := fr.WriteData(1, true, []byte{0, 0, 0, 0, 1, 255}); err != nil {
		t.Fatal(err)
	}
	if out, err := invoke(short(t), l.conn, "WantEcho", []byte("other")); err != nil || string(out) != "other" {
		t.Fatalf("a stuck client hurts another: %v", err)
	}
}

// A frame the relay cannot follow ends its looking, not the relaying: the backend answers as it does without us.
func TestBlindGivesTheBackendsOwnError(t *testing.T) {
	t.Parallel()
	bad, none, odd := bytes.Repeat([]byte{0xff}, 7), []byte{0, 0, 0, 0, 1, 0, 0, 0, 1}, []byte{1, 2, 3, 4, 5} // the second is the frame of no data
	backend, received := lastWord(t, bad, none, odd)
	events := make(chan relay.Event, 100)
	_, path := startRelay(t, relay.Config{Dial: dialUnix(backend), Handler: &handler{}, Events: func(e relay.Event) { events <- e }})
	for name, send := range map[string]func(*http2.Framer) error{
		"header block": func(fr *http2.Framer) error {
			return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: bad, EndHeaders: true})
		},
		"interleaved block": func(fr *http2.Framer) error {
			if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}); err != nil {
				return err
			}
			return fr.WriteData(1, true, nil)
		},
		"held message then garbage": func(fr *http2.Framer) error {
			if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block(t, "/t.S/WantEcho"), EndHeaders: true}); err != nil {
				return err
			}
			if err := fr.WriteData(1, false, []byte{0, 0, 0, 0, 9}); err != nil {
				return err
			}
			return fr.WriteRawFrame(http2.FrameSettings, 0, 0, odd)
		},
	} {
		var sent bytes.Buffer
		if err := send(http2.NewFramer(&sent, nil)); err != nil {
			t.Fatal(err)
		}
		nc, fr := rawClient(t, path)
		if _, err := nc.Write(sent.Bytes()); err != nil {
			t.Fatal(err)
		}
		_ = nc.SetReadDeadline(time.Now().Add(time.Minute))
		ended := "its close alone"
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			if ga, ok := f.(*http2.GoAwayFrame); ok {
				ended = ga.ErrCode.String()
			}
		}
		if want := http2.ErrCodeEnhanceYourCalm.String(); ended != want {
			t.Errorf("%s: ended by %s, the backend says %s", name, ended, want)
		}
		if got := <-received; !bytes.HasSuffix(got, sent.Bytes()) {
			t.Errorf("%s: the backend received %q, sent was %q", name, got, sent.Bytes())
		}
		if e := <-events; e.Kind != relay.EventBlind || e.Err == nil {
			t.Errorf("%s: event %+v", name, e)
		}
		_ = nc.Close()
	}
}

// lastWord is a backend that reads until the garbage of TestBlindGivesTheBackendsOwnError has come, whatever it is, and ends the connection
// with an error that no relay has of itself. What it has read comes out.
func lastWord(t *testing.T, garbage ...[]byte) (path string, received <-chan []byte) {
	t.Helper()
	path = filepath.Join(shortDir(t), "b")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	out := make(chan []byte, len(garbage))
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			var got []byte
			for buf := make([]byte, 4096); !slices.ContainsFunc(garbage, func(g []byte) bool { return bytes.HasSuffix(got, g) }); {
				n, err := c.Read(buf)
				if got = append(got, buf[:n]...); err != nil {
					break
				}
			}
			_ = http2.NewFramer(c, nil).WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil)
			_ = c.Close()
			out <- got
		}
	}()
	return path, out
}

func TestServeAndShutdownEdges(t *testing.T) {
	t.Parallel()
	if _, err := relay.New(relay.Config{}); err == nil {
		t.Error("no Dial function was accepted")
	}
	b := startBackend(t, filepath.Join(shortDir(t), "b"))
	s, front := startRelay(t, relay.Config{Dial: dialUnix(b.path)})
	c := dial(t, front)
	errs := make(chan error, 1)
	go func() {
		_, err := invoke(short(t), c, "Wait", []byte("x"))
		errs <- err
	}()
	eventually(t, func() bool { return b.waitOn.Load() == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); err == nil {
		t.Error("a stream that does not end was waited for without end")
	}
	if err := <-errs; status.Code(err) != codes.Unavailable {
		t.Errorf("call cut off by shutdown: %v", err)
	}
	ln, err := net.Listen("unix", filepath.Join(shortDir(t), "again"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(context.Background(), ln); err == nil {
		t.Error("a server that was shut down served again")
	}
}
