// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package podstest makes what Kubernetes says of the pods of a node, for tests of those who look at it.
//
// Inputs are pod objects as the API server sends them; output is what a real keeper makes of them. It is imported by tests
// only, and imports koordlet/internal/pods and the standard library.
package podstest

import (
	"context"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
)

// Snapshot is what a keeper knows that has been told of these objects. The keeper has ended.
func Snapshot(t testing.TB, objects ...string) *pods.Snapshot {
	t.Helper()
	told := make(chan *pods.Snapshot, 1)
	k := pods.New(pods.Options{
		Follow: func(ctx context.Context, sink *pods.APISink) error {
			sink.Begin()
			for _, o := range objects {
				sink.Object([]byte(o))
			}
			sink.End()
			sink.State(nil)
			<-ctx.Done()
			return nil
		},
		OnChange: func(s *pods.Snapshot) { told <- s },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case s := <-told:
		return s
	case <-time.After(time.Minute):
		t.Fatal("the keeper has made nothing of the pods within a minute")
		return nil
	}
}
