// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
)

// slo is an object as somebody decodes it.
type slo struct {
	Spec struct{ Size int }
}

func decodeSLO(raw []byte) (slo, error) {
	var s slo
	if err := json.Unmarshal(raw, &s); err != nil {
		return slo{}, err
	}
	return s, nil
}

// single starts a Single that ends with the test.
func single(t *testing.T, c *kube.Client) (*kube.Single[slo], <-chan kube.Observation[slo]) {
	t.Helper()
	told := make(chan kube.Observation[slo], 100)
	o := kube.FollowOptions{MinRetry: time.Millisecond, MaxRetry: 20 * time.Millisecond}
	s := kube.NewSingle(c, kube.NodeSLOs, "node-001", decodeSLO, o, func(o kube.Observation[slo]) { told <- o })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return s, told
}

// await reads observations until one is as wanted.
func await(t *testing.T, told <-chan kube.Observation[slo], what string, want func(kube.Observation[slo]) bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	var last kube.Observation[slo]
	for {
		select {
		case last = <-told:
			if want(last) {
				return
			}
		case <-deadline.C:
			t.Fatalf("%s: not told; last %+v", what, last)
		}
	}
}

func TestSingle(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	s, told := single(t, client(t, server))
	await(t, told, "no CRD", func(o kube.Observation[slo]) bool { return errors.Is(o.Err, kube.ErrNotServed) && !o.Known })
	server.Serve(slos)
	await(t, told, "no object", func(o kube.Observation[slo]) bool { return o.Err == nil && !o.Known && !o.Exists })
	server.Put(t, slos, `{"metadata":{"name":"node-001"},"spec":{"size":1}}`)
	await(t, told, "an object", func(o kube.Observation[slo]) bool { return o.Err == nil && o.Exists && o.Value.Spec.Size == 1 })

	// Somebody's status, and somebody's object, are no news.
	server.Put(t, slos, `{"metadata":{"name":"node-001"},"spec":{"size":1},"status":{"a":1}}`)
	server.Put(t, slos, `{"metadata":{"name":"node-002"},"spec":{"size":7}}`)
	server.Put(t, slos, `{"metadata":{"name":"node-001"},"spec":{"size":2}}`)
	if o := <-told; o.Value.Spec.Size != 2 || o.Version != "104" {
		t.Errorf("told of %+v", o)
	}

	server.Put(t, slos, `{"metadata":{"name":"node-001"},"spec":{"size":"large"}}`)
	await(t, told, "nonsense", func(o kube.Observation[slo]) bool {
		return errors.Is(o.Err, kube.ErrMalformed) && o.Exists && o.Known && o.Value.Spec.Size == 2 && strings.Contains(o.Err.Error(), "nodeslos.slo.koordinator.sh node-001")
	})
	server.Put(t, slos, `{"metadata":{"name":"node-001"},"spec":{"size":9},"status":{"a":"`+strings.Repeat("<", 1<<20)+`"}}`)
	await(t, told, "too large", func(o kube.Observation[slo]) bool {
		return errors.Is(o.Err, kube.ErrMalformed) && o.Exists && o.Value.Spec.Size == 2 && strings.Contains(o.Err.Error(), "too large")
	})
	server.Down(true)
	await(t, told, "server away", func(o kube.Observation[slo]) bool {
		return o.Err != nil && !errors.Is(o.Err, kube.ErrMalformed) && o.Value.Spec.Size == 2
	})
	server.Put(t, slos, `{"metadata":{"name":"node-001"},"spec":{"size":3}}`)
	server.Down(false)
	await(t, told, "server back", func(o kube.Observation[slo]) bool { return o.Err == nil && o.Value.Spec.Size == 3 })
	server.Delete(slos, "node-001")
	await(t, told, "deleted by hand", func(o kube.Observation[slo]) bool {
		return o.Err == nil && !o.Exists && o.Known && o.Value.Spec.Size == 3
	})
	if o := s.Load(); o.Exists || o.Value.Spec.Size != 3 || o.Since.IsZero() {
		t.Errorf("%+v", o)
	}
}

// A list that breaks off in the middle must change nothing, whatever it held so far.
func TestSingleIgnoresHalfAList(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	bodies := make(chan string, 3)
	bodies <- `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"node-001"},"spec":{"size":9}}`
	bodies <- `{"items":[{"metadata":{"name":"node-001"},"spec":{"size":9}}]}`
	server.Fail(func(*http.Request) (int, string) {
		select {
		case body := <-bodies:
			return 200, body
		default:
			return 0, ""
		}
	})
	server.Put(t, slos, `{"metadata":{"name":"node-001"},"spec":{"size":1}}`)
	_, told := single(t, client(t, server))
	await(t, told, "the whole list", func(o kube.Observation[slo]) bool {
		if o.Value.Spec.Size == 9 {
			t.Error("half a list counted")
		}
		return o.Err == nil && o.Value.Spec.Size == 1
	})
}
