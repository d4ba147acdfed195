// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package unary_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/koord-rt/koord-rt/adapt/unary"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs gRPC's own server: whatever it is sent, by method, is given to answer.
func serve(t *testing.T, l net.Listener, answer func(ctx context.Context, method string, in []byte) ([]byte, error)) *grpc.Server {
	t.Helper()
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var in wrapperspb.BytesValue
		if err := stream.RecvMsg(&in); err != nil {
			return err
		}
		method, _ := grpc.MethodFromServerStream(stream)
		out, err := answer(stream.Context(), method, in.Value)
		if err != nil {
			return err
		}
		return stream.SendMsg(wrapperspb.Bytes(out))
	}))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return s
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wrap is a BytesValue on the wire for payloads shorter than 128 bytes.
func wrap(s string) []byte { return append([]byte{0x0a, byte(len(s))}, s...) }

func TestCall(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	unix, tcp := listen(t, "unix", path), listen(t, "tcp", "127.0.0.1:0")
	for network, l := range map[string]net.Listener{"unix": unix, "tcp": tcp} {
		serve(t, l, func(ctx context.Context, method string, in []byte) ([]byte, error) {
			if method == "/a.B/Fail" {
				return nil, status.Errorf(codes.NotFound, "no %s: 100%% gone", in)
			}
			if method == "/a.B/Long" {
				return bytes.Repeat(in, 2000), nil
			}
			if _, ok := ctx.Deadline(); ok != (method == "/a.B/Timed") {
				t.Errorf("%s: has deadline: %v", method, ok)
			}
			return append([]byte(method+" "), in...), nil
		})
		c := unary.New(network, l.Addr().String(), 4096)
		t.Cleanup(c.Close)
		ctx := context.Background()
		if got, err := c.Call(ctx, "/a.B/C", wrap("x")); err != nil || string(got) != string(wrap("/a.B/C x")) {
			t.Errorf("%s: %q, %v", network, got, err)
		}
		timed, cancel := context.WithTimeout(ctx, time.Minute)
		if _, err := c.Call(timed, "/a.B/Timed", nil); err != nil {
			t.Error(err)
		}
		cancel()
		_, err := c.Call(ctx, "/a.B/Fail", wrap("x"))
		var s *unary.Status
		if !errors.As(err, &s) || s.Code != int(codes.NotFound) || s.Message != "no x: 100% gone" {
			t.Errorf("%s: %v", network, err)
		}
		if _, err := c.Call(ctx, "/a.B/Long", wrap("xyz")); !errors.Is(err, unary.ErrTooLarge) {
			t.Errorf("%s: long answer: %v", network, err)
		}
		if _, err := c.Call(ctx, "/a.B/C", make([]byte, 4097)); !errors.Is(err, unary.ErrTooLarge) {
			t.Errorf("%s: long message: %v", network, err)
		}
	}
}

func TestDeadlineEndsACall(t *testing.T) {
	t.Parallel()
	l := listen(t, "unix", filepath.Join(t.TempDir(), "s"))
	serve(t, l, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	c := unary.New("unix", l.Addr().String(), 100)
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Call(ctx, "/a.B/C", nil)
	var s *unary.Status
	if !errors.Is(err, context.DeadlineExceeded) && (!errors.As(err, &s) || s.Code != unary.CodeDeadlineExceeded) {
		t.Errorf("error = %v", err)
	}
}

// A server that went and came back on the same path is found again; in between the error says what is wrong.
func TestServerGoneAndBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	echo := func(_ context.Context, _ string, in []byte) ([]byte, error) { return in, nil }
	c := unary.New("unix", path, 100)
	t.Cleanup(c.Close)
	if _, err := c.Call(t.Context(), "/a.B/C", nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error = %v", err)
	}
	for range 3 {
		s := serve(t, listen(t, "unix", path), echo)
		if _, err := c.Call(t.Context(), "/a.B/C", wrap("y")); err != nil {
			t.Error(err)
		}
		s.Stop()
		if _, err := c.Call(t.Context(), "/a.B/C", nil); err == nil {
			t.Error("answer from a server that is gone")
		}
	}
}

// What is no gRPC server is told apart, and a bad frame never becomes an answer.
func TestNotGRPC(t *testing.T) {
	t.Parallel()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	l := listen(t, "unix", filepath.Join(t.TempDir(), "s"))
	s := &http.Server{Protocols: &protocols, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("Content-Type", "application/grpc+proto")
		switch r.URL.Path {
		case "/html":
			http.Error(w, "no", http.StatusNotFound)
			return
		case "/short":
			_, _ = w.Write([]byte{0, 0, 0, 0, 9, 1})
		case "/two":
			_, _ = w.Write([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
		case "/packed":
			_, _ = w.Write([]byte{1, 0, 0, 0, 0})
		case "/huge":
			_, _ = w.Write([]byte{0, 0xff, 0xff, 0xff, 0xff})
		case "/none":
		case "/word":
			_, _ = w.Write([]byte{0, 0, 0, 0, 0})
			w.Header().Set("Grpc-Status", "fine")
			return
		}
		w.Header().Set("Grpc-Status", "0")
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	c := unary.New("unix", l.Addr().String(), 100)
	t.Cleanup(c.Close)
	for path, want := range map[string]string{
		"/html": "not gRPC", "/short": "no single plain", "/two": "no single plain", "/packed": "no single plain",
		"/huge": "too large", "/none": "no single plain", "/word": "not gRPC",
	} {
		if got, err := c.Call(t.Context(), path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}
