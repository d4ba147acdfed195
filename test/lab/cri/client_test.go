// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// asked answers each call of Status by what is said of that one, counted from 0.
type asked struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	calls  atomic.Int64
	answer func(ctx context.Context, call int64) (*runtimeapi.StatusResponse, error)
}

func (a *asked) Status(ctx context.Context, _ *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return a.answer(ctx, a.calls.Add(1)-1)
}

// said is an answer with one condition.
func said(condition string, holds bool, reason string) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
		Conditions: []*runtimeapi.RuntimeCondition{{Type: condition, Status: holds, Reason: reason}},
	}}, nil
}

// to is a client of a runtime that answers so.
func to(t *testing.T, a *asked) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, a)
	go s.Serve(l) //nolint:errcheck // it ends with Stop
	t.Cleanup(s.Stop)
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A runtime that fails, has nothing to say and is not ready yet is asked until it is.
func TestWaitReady(t *testing.T) {
	t.Parallel()
	a := &asked{answer: func(_ context.Context, call int64) (*runtimeapi.StatusResponse, error) {
		switch call {
		case 0:
			return nil, status.Error(codes.Unavailable, "it begins")
		case 1:
			return said(runtimeapi.NetworkReady, true, "")
		case 2:
			return said(runtimeapi.RuntimeReady, false, "Loading")
		}
		return said(runtimeapi.RuntimeReady, true, "")
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := to(t, a).WaitReady(ctx); err != nil || a.calls.Load() != 4 {
		t.Errorf("after %d calls: %v, want none after 4", a.calls.Load(), err)
	}
}

// When the time is up the runtime's last word is told.
func TestWaitReadyGivesUp(t *testing.T) {
	t.Parallel()
	for want, answer := range map[string]*runtimeapi.RuntimeCondition{
		"runtime is not ready: Loading":     {Type: runtimeapi.RuntimeReady, Reason: "Loading"},
		"reports no RuntimeReady condition": {Type: runtimeapi.NetworkReady, Status: true},
	} {
		ctx, end := context.WithCancel(t.Context())
		c := to(t, &asked{answer: func(ctx context.Context, call int64) (*runtimeapi.StatusResponse, error) {
			if call == 2 {
				end()
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return said(answer.Type, answer.Status, answer.Reason)
		}})
		if err := c.WaitReady(ctx); ctx.Err() == nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q when the time is up", err, want)
		}
		end()
	}
}

// Of a runtime that hangs it is told that it does.
func TestWaitReadyHangs(t *testing.T) {
	t.Parallel()
	c := to(t, &asked{answer: func(ctx context.Context, _ int64) (*runtimeapi.StatusResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := c.WaitReady(ctx); ctx.Err() == nil || status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v, want gRPC's DeadlineExceeded when the time is up", err)
	}
}

// late is a context whose deadline passes before it ends, as that of one whose timer is late.
type late struct {
	context.Context
	passed *atomic.Bool
}

func (l late) Deadline() (time.Time, bool) {
	if l.passed.Load() {
		return time.Now().Add(-time.Second), true
	}
	return time.Now().Add(time.Minute), true
}

// What the runtime said stands when gRPC refuses the next calls by the clock and the context
// has not ended.
func TestWaitReadyGivesUpLate(t *testing.T) {
	t.Parallel()
	ends, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx := late{Context: ends, passed: new(atomic.Bool)}
	c := to(t, &asked{answer: func(context.Context, int64) (*runtimeapi.StatusResponse, error) {
		ctx.passed.Store(true)
		time.AfterFunc(time.Second, cancel)
		return said(runtimeapi.RuntimeReady, false, "Loading")
	}})
	err := c.WaitReady(ctx)
	if want := "runtime is not ready: Loading"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
