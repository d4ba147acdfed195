// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/adapt/cri"
)

// stops is a runtime that notes what it is to stop.
type stops struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	asked chan stopped
}

type stopped struct {
	id      string
	timeout int64
	// outlasts: the call waits longer than the timeout.
	outlasts bool
}

func (s stops) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	end, limited := ctx.Deadline()
	s.asked <- stopped{r.ContainerId, r.Timeout, !limited || time.Until(end) > time.Duration(r.Timeout)*time.Second}
	if r.ContainerId == "gone" {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// The grace period goes to the runtime in whole seconds, and the call waits longer than it.
func TestStop(t *testing.T) {
	t.Parallel()
	r := stops{asked: make(chan stopped, 1)}
	l := serve(t, r)
	for grace, want := range map[time.Duration]int64{-time.Second: 0, 0: 0, time.Millisecond: 1, 5 * time.Second: 5, 20*time.Second + 1: 21} {
		if err := l.StopWithin(t.Context(), "c1", grace); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(stopped{"c1", want, true}, <-r.asked, cmp.AllowUnexported(stopped{})); d != "" {
			t.Errorf("%s: %s", grace, d)
		}
	}
	if err := l.Stop(t.Context(), "gone"); !errors.Is(err, cri.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
