// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
)

// transcript is everything a client can see of a call.
func transcript(ctx context.Context, c *grpc.ClientConn, method string, in []byte) string {
	var h, tr metadata.MD
	out, err := invoke(ctx, c, method, in, grpc.Header(&h), grpc.Trailer(&tr))
	delete(h, "date")
	return fmt.Sprintf("out=%x err=%v proto=%v header=%v trailer=%v", out, err, status.Convert(err).Proto(), h, tr)
}

func streamTranscript(ctx context.Context, c *grpc.ClientConn, method string, in ...[]byte) string {
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/t.S/"+method)
	if err != nil {
		return err.Error()
	}
	var log bytes.Buffer
	for _, m := range in {
		if err := s.SendMsg(&m); err != nil && !errors.Is(err, io.EOF) {
			return err.Error()
		}
	}
	_ = s.CloseSend()
	for {
		var out []byte
		if err := s.RecvMsg(&out); err != nil {
			h, herr := s.Header()
			fmt.Fprintf(&log, "end=%v header=%v %v trailer=%v", err, h, herr, s.Trailer())
			return log.String()
		}
		fmt.Fprintf(&log, "%d:%x ", len(out), sumOf(out))
	}
}

func TestSameAsDirect(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]grpc.ServerOption{
		"defaults": nil, "no table": {grpc.HeaderTableSize(0)}, "small table": {grpc.HeaderTableSize(100)}, "large table": {grpc.HeaderTableSize(1 << 17)},
		"few streams": {grpc.MaxConcurrentStreams(1), grpc.InitialWindowSize(1 << 20), grpc.InitialConnWindowSize(1 << 20)},
	} {
		t.Run(name, func(t *testing.T) { sameAsDirect(t, opts) })
	}
}

func sameAsDirect(t *testing.T, opts []grpc.ServerOption) {
	t.Helper()
	l := newLab(t, &handler{}, relay.Limits{}, opts...)
	direct := dial(t, l.backend.path)
	ctx := metadata.AppendToOutgoingContext(short(t), "x-a", "1", "x-a", "2", "x-b-bin", "\x00\xfe", "x-long", string(bytes.Repeat([]byte("y"), 9000)))
	for _, method := range []string{"Echo", "WantEcho", "Meta", "WantMeta", "Fail", "WantFail", "NoSuchMethod", "WantNoSuchMethod", "Early", "WantEarly"} {
		for range 2 { // the dynamic tables differ from call to call
			if got, want := transcript(ctx, l.conn, method, []byte("hello")), transcript(ctx, direct, method, []byte("hello")); got != want {
				t.Errorf("%s\n got %s\nwant %s", method, got, want)
			}
		}
	}
	for name, in := range map[string][][]byte{
		"Count": {{200}}, "Bidi": {[]byte("a"), make([]byte, 1<<20), []byte("c")}, "NoSuchStream": {{1}}, "WantBidi": {[]byte("a"), make([]byte, 1<<20), {}},
	} {
		if got, want := streamTranscript(ctx, l.conn, name, in...), streamTranscript(ctx, direct, name, in...); got != want {
			t.Errorf("%s\n got %s\nwant %s", name, got, want)
		}
	}
	l.noEvents(t)
}

func TestEmptyMessageAndNoMessage(t *testing.T) {
	t.Parallel()
	h := &handler{}
	l := newLab(t, h, relay.Limits{})
	if out, err := invoke(short(t), l.conn, "WantEcho", nil); err != nil || len(out) != 0 {
		t.Fatalf("empty message: %x %v", out, err)
	}
	if r := h.lastResult(t, 1); r.Code != 0 || r.Reply == nil || len(r.Reply) != 0 || r.Err != nil {
		t.Fatalf("result %+v", r)
	}
	if got := streamTranscript(short(t), l.conn, "WantBidi"); !bytes.Contains([]byte(got), []byte("end=EOF")) {
		t.Fatalf("no message: %s", got)
	}
	h.lastResult(t, 2)
	if len(h.opaque) != 1 || h.opaque[0] != relay.OpaqueShape {
		t.Fatalf("opaque %v", h.opaque)
	}
}

func TestSeveralMessagesPass(t *testing.T) {
	t.Parallel()
	h := &handler{}
	l := newLab(t, h, relay.Limits{})
	s, err := l.conn.NewStream(short(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/t.S/WantBidi")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		m := bytes.Repeat([]byte{byte(i)}, 3000)
		if err := s.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		var out []byte
		if err := s.RecvMsg(&out); err != nil || !bytes.Equal(out, bytes.Repeat([]byte{byte(i)}, 3000)) {
			t.Fatalf("message %d: %d bytes, %v", i, len(out), err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var out []byte
	if err := s.RecvMsg(&out); !errors.Is(err, io.EOF) {
		t.Fatalf("end: %v", err)
	}
	l.noEvents(t)
}

func TestDeadlineAndCancelReachBackendAndHandler(t *testing.T) {
	t.Parallel()
	ctxErr := make(chan error, 8)
	h := &handler{}
	l := newLab(t, h, relay.Limits{})
	if _, err := invoke(short(t), l.conn, "Echo", []byte("first")); err != nil { // no deadline below has to hold a dial
		t.Fatal(err)
	}
	for _, method := range []string{"Wait", "WantWait"} {
		// A call that expires before the backend has it shows nothing: it is made again, with twice the time.
		before := l.waitOn.Load()
		for limit := 2 * time.Second; l.waitOn.Load() == before && limit < time.Minute; limit *= 2 {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			_, err := invoke(ctx, l.conn, method, []byte("x"))
			cancel()
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s deadline: %v", method, err)
			}
		}
		if l.waitOn.Load() == before {
			t.Fatalf("%s: no call has reached the backend", method)
		}
		// As many end as have reached it, also where one has that had expired already.
		for ; before < l.waitOn.Load(); before++ {
			<-l.ended
		}
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			eventually(t, func() bool { return l.waitOn.Load() > before })
			cancel()
		}()
		if _, err := invoke(ctx, l.conn, method, []byte("x")); status.Code(err) != codes.Canceled {
			t.Errorf("%s cancel: %v", method, err)
		}
		if err := <-l.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s backend saw %v", method, err)
		}
	}
	h.lastResult(t, 2)
	// A handler that waits is told about the client's deadline and about its reset.
	h.mu.Lock()
	asked, expired := make(chan struct{}, 8), make(chan struct{})
	h.request = func(ctx context.Context, _ *relay.Call, _ []byte) relay.Verdict {
		asked <- struct{}{}
		<-ctx.Done()
		ctxErr <- ctx.Err()
		<-expired // on a busy machine an answer might come before the client looks at its clock
		return relay.Verdict{}
	}
	h.mu.Unlock()
	// As above: a call that has expired before the handler is asked shows nothing.
	for limit := 2 * time.Second; len(asked) == 0 && limit < time.Minute; limit *= 2 {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		_, err := invoke(ctx, l.conn, "WantEcho", []byte("x"))
		cancel()
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("deadline in handler: %v", err)
		}
	}
	close(expired)
	if len(asked) == 0 {
		t.Fatal("no call has reached the handler")
	}
	select {
	case err := <-ctxErr:
		if err == nil {
			t.Error("context of the handler did not end")
		}
	case <-time.After(time.Minute):
		t.Error("the handler is not told of the deadline")
	}
	if _, err := invoke(short(t), l.conn, "Echo", []byte("still")); err != nil {
		t.Error(err)
	}
}

func TestBigMessages(t *testing.T) {
	t.Parallel()
	h := &handler{}
	l := newLab(t, h, relay.Limits{})
	for _, mib := range []int{1, 16, 40} {
		in := make([]byte, mib<<20)
		for i := range in {
			in[i] = byte(i * 7 >> 3)
		}
		for _, method := range []string{"Hash", "WantHash"} {
			if out, err := invoke(short(t), l.conn, method, in); err != nil || !bytes.Equal(out, sumOf(in)) {
				t.Fatalf("%s %d MiB: %x %v", method, mib, out, err)
			}
		}
		for _, method := range []string{"Echo", "WantEcho"} {
			if out, err := invoke(short(t), l.conn, method, in); err != nil || !bytes.Equal(out, in) {
				t.Fatalf("%s %d MiB: %d bytes %v", method, mib, len(out), err)
			}
		}
	}
	h.lastResult(t, 6)
	if h.asked != 4 || len(h.opaque) != 2 || h.opaque[0] != relay.OpaqueTooLarge {
		t.Fatalf("asked %d opaque %v", h.asked, h.opaque)
	}
	l.noEvents(t)
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	h := &handler{request: func(_ context.Context, c *relay.Call, msg []byte) relay.Verdict {
		c.State = len(msg)
		if bytes.HasPrefix(msg, []byte("shrink")) {
			return relay.Verdict{Message: []byte{}}
		}
		return relay.Verdict{Message: append(bytes.Repeat([]byte("+"), 3<<20), msg...)}
	}}
	l := newLab(t, h, relay.Limits{})
	for i := range 5 {
		if out, err := invoke(short(t), l.conn, "WantEcho", []byte("abc")); err != nil || len(out) != 3<<20+3 || !bytes.HasSuffix(out, []byte("abc")) {
			t.Fatalf("grow: %d bytes %v", len(out), err)
		}
		if r := h.lastResult(t, 2*i+1); r.Code != 0 || r.Reply != nil {
			t.Fatalf("a reply beyond the limit is not kept: %d %v", r.Code, len(r.Reply))
		}
		if out, err := invoke(short(t), l.conn, "WantEcho", append([]byte("shrink"), make([]byte, 3<<20)...)); err != nil || len(out) != 0 {
			t.Fatalf("shrink: %d bytes %v", len(out), err)
		}
		h.lastResult(t, 2*i+2)
	}
	l.noEvents(t)
}

// Thousands of messages grow or shrink while others upload; with exact accounting neither a window overflows nor credit gets lost.
func TestFlowControlStaysExact(t *testing.T) {
	t.Parallel()
	const workers, rounds = 8, 300
	h := &handler{request: func(_ context.Context, _ *relay.Call, msg []byte) relay.Verdict {
		n := int(binary.BigEndian.Uint32(msg))
		return relay.Verdict{Message: append(msg[:4:4], make([]byte, n)...)}
	}}
	l := newLab(t, h, relay.Limits{}, grpc.StaticStreamWindowSize(65535), grpc.StaticConnWindowSize(65535))
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				in := make([]byte, 4+(i*131)%20000)
				grown := (i * 977 * (w + 1)) % 24000
				if i%97 == 0 {
					grown = 300 << 10
				}
				binary.BigEndian.PutUint32(in, uint32(grown))
				want := sumOf(append(append([]byte(nil), in[:4]...), make([]byte, grown)...))
				if out, err := invoke(ctx, l.conn, "WantHash", in); err != nil || !bytes.Equal(out, want) {
					t.Errorf("worker %d round %d: %v", w, i, err)
					return
				}
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			in := bytes.Repeat([]byte("u"), 4<<20)
			want := sumOf(in)
			for i := range 6 {
				if out, err := invoke(ctx, l.conn, "Hash", in); err != nil || !bytes.Equal(out, want) {
					t.Errorf("upload %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	l.noEvents(t)
}

func TestReject(t *testing.T) {
	t.Parallel()
	h := &handler{request: func(_ context.Context, _ *relay.Call, msg []byte) relay.Verdict {
		if bytes.Equal(msg, []byte("ok")) {
			return relay.Verdict{}
		}
		return relay.Verdict{Reject: &relay.Rejection{Code: uint32(codes.FailedPrecondition), Message: "pod a/b: 100 % nö\n"}}
	}}
	l := newLab(t, h, relay.Limits{})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 150 {
				ctx := metadata.AppendToOutgoingContext(short(t), "x-w", fmt.Sprint(w, i%7))
				method := []string{"WantEcho", "WantHeader", "WantHash"}[i%3]
				_, err := invoke(ctx, l.conn, method, make([]byte, 1+i*40))
				if st := status.Convert(err); st.Code() != codes.FailedPrecondition || st.Message() != "pod a/b: 100 % nö\n" {
					t.Errorf("reject: %v", err)
					return
				}
				if out, err := invoke(ctx, l.conn, "WantEcho", []byte("ok")); err != nil || string(out) != "ok" {
					t.Errorf("between rejects: %v", err)
					return
				}
				if out, err := invoke(ctx, l.conn, "WantNoSuchMethod", []byte("no")); len(out) != 0 ||
					(status.Code(err) != codes.Unimplemented && status.Code(err) != codes.FailedPrecondition) {
					t.Errorf("early end against reject: %v", err)
					return
				}
				if got := transcript(ctx, l.conn, "Fail", nil); !bytes.Contains([]byte(got), []byte("detail")) {
					t.Errorf("header tables out of step: %s", got)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := l.seen.Load(); got != 8*150*2 {
		t.Errorf("%d requests reached the backend, want %d", got, 8*150*2)
	}
	l.noEvents(t)
}

func TestHandlerPanicForwardsOriginal(t *testing.T) {
	t.Parallel()
	l := newLab(t, &handler{request: func(context.Context, *relay.Call, []byte) relay.Verdict { panic("boom") }}, relay.Limits{})
	if out, err := invoke(short(t), l.conn, "WantEcho", []byte("abc")); err != nil || string(out) != "abc" {
		t.Fatalf("%q %v", out, err)
	}
	if e := <-l.events; e.Kind != relay.EventPanic || e.Path != "/t.S/WantEcho" {
		t.Fatalf("event %+v", e)
	}
}

func TestBackendRestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "b")
	b := startBackend(t, path)
	_, front := startRelay(t, relay.Config{Dial: dialUnix(path), Handler: &handler{}})
	c := dial(t, front)
	if _, err := invoke(short(t), c, "WantEcho", []byte("1")); err != nil {
		t.Fatal(err)
	}
	b.srv.Stop()
	if _, err := invoke(short(t), c, "WantEcho", []byte("2")); status.Code(err) != codes.Unavailable {
		t.Fatalf("without backend: %v", err)
	}
	startBackend(t, path)
	if out, err := invoke(short(t), c, "WantEcho", []byte("3"), grpc.WaitForReady(true)); err != nil || string(out) != "3" {
		t.Fatalf("after restart: %v", err)
	}
}

func TestShutdownLetsCallsEnd(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	in := make(chan struct{})
	l := newLab(t, &handler{request: func(context.Context, *relay.Call, []byte) relay.Verdict {
		close(in)
		<-release
		return relay.Verdict{}
	}}, relay.Limits{})
	result := make(chan error, 1)
	go func() {
		_, err := invoke(short(t), l.conn, "WantEcho", []byte("slow"))
		result <- err
	}()
	<-in
	down := make(chan error, 1)
	go func() { down <- l.server.Shutdown(short(t)) }()
	select {
	case err := <-down:
		t.Fatalf("shut down before the call ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	if err := <-result; err != nil {
		t.Errorf("call in flight: %v", err)
	}
	if err := <-down; err != nil {
		t.Errorf("shutdown: %v", err)
	}
}
