// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package relay_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
)

// raw is a codec whose messages are *[]byte.
type raw struct{}

func (raw) Name() string { return "raw" }
func (raw) Marshal(v any) ([]byte, error) {
	return *(v.(*[]byte)), nil
}
func (raw) Unmarshal(b []byte, v any) error {
	*(v.(*[]byte)) = append([]byte(nil), b...)
	return nil
}

const maxMsg = 128 << 20

// backend is a real gRPC server on a unix socket.
type backend struct {
	path   string
	srv    *grpc.Server
	seen   atomic.Int64 // unary requests that reached a handler
	ended  chan error   // contexts of Wait calls that ended
	waitOn atomic.Int64
}

func sumOf(b []byte) []byte { s := sha256.Sum256(b); return s[:] }

func (b *backend) unary(name string, f func(ctx context.Context, in []byte) ([]byte, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in []byte
		if err := dec(&in); err != nil {
			return nil, err
		}
		b.seen.Add(1)
		out, err := f(ctx, in)
		return &out, err
	}}
}

func (b *backend) desc() *grpc.ServiceDesc {
	echo := func(_ context.Context, in []byte) ([]byte, error) { return in, nil }
	stream := func(name string, f func(grpc.ServerStream) error) grpc.StreamDesc {
		return grpc.StreamDesc{StreamName: name, ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return f(s) }}
	}
	return &grpc.ServiceDesc{ServiceName: "t.S", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
		b.unary("Echo", echo), b.unary("WantEcho", echo),
		b.unary("Hash", func(_ context.Context, in []byte) ([]byte, error) { return sumOf(in), nil }),
		b.unary("WantHash", func(_ context.Context, in []byte) ([]byte, error) { return sumOf(in), nil }),
		b.unary("Make", func(_ context.Context, in []byte) ([]byte, error) {
			return make([]byte, binary.BigEndian.Uint32(in)), nil
		}),
		b.unary("Meta", meta), b.unary("WantMeta", meta),
		b.unary("Fail", fail), b.unary("WantFail", fail),
		b.unary("Wait", b.wait), b.unary("WantWait", b.wait),
	}, Streams: []grpc.StreamDesc{
		stream("Count", count), stream("Bidi", bidi), stream("WantBidi", bidi), stream("Early", func(grpc.ServerStream) error {
			return status.Error(codes.ResourceExhausted, "not today")
		}), stream("WantEarly", func(grpc.ServerStream) error { return status.Error(codes.ResourceExhausted, "not today") }),
		stream("WantHeader", func(s grpc.ServerStream) error {
			if err := s.SendHeader(metadata.Pairs("early", "yes")); err != nil {
				return err
			}
			var in []byte
			return s.RecvMsg(&in)
		}),
	}}
}

func (b *backend) wait(ctx context.Context, _ []byte) ([]byte, error) {
	b.waitOn.Add(1)
	<-ctx.Done()
	b.ended <- ctx.Err()
	return nil, ctx.Err()
}

func meta(ctx context.Context, _ []byte) ([]byte, error) {
	in, _ := metadata.FromIncomingContext(ctx)
	var lines []string
	for k, v := range in {
		if strings.HasPrefix(k, "x-") {
			lines = append(lines, fmt.Sprintf("%s=%q", k, v))
		}
	}
	sort.Strings(lines)
	if err := grpc.SendHeader(ctx, metadata.Pairs("h", "1", "h", "2", "hb-bin", "\x00\xff")); err != nil {
		return nil, err
	}
	return []byte(strings.Join(lines, "\n")), grpc.SetTrailer(ctx, metadata.Pairs("t", "3", "tb-bin", "\x01"))
}

func fail(context.Context, []byte) ([]byte, error) {
	st, err := status.New(codes.FailedPrecondition, "no, nö % \n").WithDetails(wrapperspb.String("detail"))
	if err != nil {
		return nil, err
	}
	return nil, st.Err()
}

func count(s grpc.ServerStream) error {
	var in []byte
	if err := s.RecvMsg(&in); err != nil {
		return err
	}
	for i := range int(in[0]) {
		out := make([]byte, i*997)
		if err := s.SendMsg(&out); err != nil {
			return err
		}
	}
	return nil
}

func bidi(s grpc.ServerStream) error {
	for {
		var in []byte
		if err := s.RecvMsg(&in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.SendMsg(&in); err != nil {
			return err
		}
	}
}

func startBackend(t testing.TB, path string, opts ...grpc.ServerOption) *backend {
	t.Helper()
	b := &backend{path: path, ended: make(chan error, 4096)}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	opts = append([]grpc.ServerOption{grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(maxMsg), grpc.MaxSendMsgSize(maxMsg)}, opts...)
	b.srv = grpc.NewServer(opts...)
	b.srv.RegisterService(b.desc(), nil)
	go func() { _ = b.srv.Serve(ln) }()
	t.Cleanup(b.srv.Stop)
	return b
}

// handler wants methods that begin with Want.
type handler struct {
	mu      sync.Mutex
	request func(ctx context.Context, c *relay.Call, msg []byte) relay.Verdict
	opaque  []relay.Opaque
	results []relay.Result
	asked   int
}

func (h *handler) Wants(path string) bool { return strings.Contains(path, "/Want") }

func (h *handler) Request(ctx context.Context, c *relay.Call, msg []byte) relay.Verdict {
	h.mu.Lock()
	h.asked++
	f := h.request
	h.mu.Unlock()
	if f == nil {
		return relay.Verdict{}
	}
	return f(ctx, c, msg)
}

func (h *handler) Opaque(_ *relay.Call, why relay.Opaque) {
	h.mu.Lock()
	h.opaque = append(h.opaque, why)
	h.mu.Unlock()
}

func (h *handler) Response(_ context.Context, _ *relay.Call, r relay.Result) {
	h.mu.Lock()
	h.results = append(h.results, r)
	h.mu.Unlock()
}

func (h *handler) lastResult(t *testing.T, n int) relay.Result {
	t.Helper()
	eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.results) >= n })
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.results[n-1]
}

func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("condition not reached in a minute\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
}

// lab is a backend, a relay in front and a client through the relay.
type lab struct {
	*backend
	server *relay.Server
	path   string
	events chan relay.Event
	conn   *grpc.ClientConn
}

func dialUnix(path string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
}

func startRelay(t testing.TB, cfg relay.Config) (*relay.Server, string) {
	t.Helper()
	return startRelayOn(t, cfg, func(ln net.Listener) net.Listener { return ln })
}

// startRelayOn is startRelay with another listener about its own.
func startRelayOn(t testing.TB, cfg relay.Config, about func(net.Listener) net.Listener) (*relay.Server, string) {
	t.Helper()
	s, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(shortDir(t), "r")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background(), about(ln)) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		s.Wait()
	})
	return s, path
}

// shortDir is a directory whose name fits a socket address.
func shortDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "relay")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newLab(t testing.TB, h relay.Handler, limits relay.Limits, opts ...grpc.ServerOption) *lab {
	t.Helper()
	l := &lab{backend: startBackend(t, filepath.Join(shortDir(t), "b"), opts...), events: make(chan relay.Event, 100)}
	l.server, l.path = startRelay(t, relay.Config{Dial: dialUnix(l.backend.path), Handler: h, Limits: limits,
		Events: func(e relay.Event) { l.events <- e }})
	l.conn = dial(t, l.path)
	return l
}

func dial(t testing.TB, path string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(maxMsg), grpc.MaxCallSendMsgSize(maxMsg))}, opts...)
	c, err := grpc.NewClient("unix:"+path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func invoke(ctx context.Context, c *grpc.ClientConn, method string, in []byte, opts ...grpc.CallOption) ([]byte, error) {
	var out []byte
	err := c.Invoke(ctx, "/t.S/"+method, &in, &out, opts...)
	return out, err
}

// noEvents fails the test if the relay told of anything.
func (l *lab) noEvents(t testing.TB) {
	t.Helper()
	select {
	case e := <-l.events:
		t.Fatalf("event %s on connection %d: %v", e.Kind, e.Conn, e.Err)
	default:
	}
}

func short(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}
