// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package cri is a small client of the Kubernetes Container Runtime Interface for
// tests: one method per call that the lab needs, plain values in and out.
//
// Input: a unix socket of a CRI runtime or proxy. Output: ids, statuses, lists. The
// raw clients are exported for calls without a method here. It must not import any
// package under test.
package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxMessage is kubelet's limit of one CRI message in bytes.
const maxMessage = 16 << 20

// Client talks to one CRI endpoint; safe for concurrent use.
type Client struct {
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	conn    *grpc.ClientConn
}

// Dial prepares a client of the unix socket at path. It does not connect: a runtime
// that starts later, or starts again, is reached by the same client.
func Dial(path string) (*Client, error) {
	conn, err := grpc.NewClient("unix:"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", path, err)
	}
	return &Client{
		Runtime: runtimeapi.NewRuntimeServiceClient(conn),
		Images:  runtimeapi.NewImageServiceClient(conn),
		conn:    conn,
	}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// WaitReady polls until the runtime says RuntimeReady, or ctx ends. The network's
// readiness is not asked for: pods of the lab use the node's network.
func (c *Client) WaitReady(ctx context.Context) error {
	var last error // what the runtime said, which says more than that the time was up in the next call
	for {
		err := c.ready(ctx)
		if err == nil {
			return nil
		}
		if last == nil || !over(ctx) {
			last = err
		}
		c.conn.ResetConnectBackoff()
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for runtime: %w: %w", ctx.Err(), last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// over says whether ctx has ended or its deadline has passed. gRPC refuses a call by the
// clock, which on a busy machine is before the context's own timer has run.
func over(ctx context.Context) bool {
	until, bound := ctx.Deadline()
	return ctx.Err() != nil || bound && !time.Now().Before(until)
}

func (c *Client) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	st, err := c.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	for _, cond := range st.GetStatus().GetConditions() {
		if cond.Type == runtimeapi.RuntimeReady {
			if cond.Status {
				return nil
			}
			return fmt.Errorf("runtime is not ready: %s %s", cond.Reason, cond.Message)
		}
	}
	return errors.New("runtime reports no RuntimeReady condition")
}
