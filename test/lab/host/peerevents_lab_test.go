// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package host_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// dial opens a connection of its own to the runtime.
func (l *lane) dial(t *testing.T) runtimeapi.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+l.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// subscribe asks for the events of containers.
func (l *lane) subscribe(t *testing.T) grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse] {
	t.Helper()
	s, err := l.dial(t).GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // nothing tells when the runtime has taken it in
	return s
}

// TestPeerEventsStall: on containerd 2 who has asked for events and reads none holds up the calls of everybody else for good. This is a reason of
// ADR 22; where it is no longer so, that decision can be looked at again.
func TestPeerEventsStall(t *testing.T) {
	l := start(t, host.Options{Version: parts.Containerd24})
	l.subscribe(t)
	c := l.dial(t)
	for i := range 1000 {
		if err := passing(t.Context(), c, fmt.Sprintf("passing-%d", i)); status.Code(err) == codes.DeadlineExceeded {
			t.Logf("pod %d that came and went hung: %v", i+1, err)
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("a thousand pods came and went beside a subscriber that reads nothing")
}

// passing makes a pod and takes it away, each call within ten seconds.
func passing(ctx context.Context, c runtimeapi.RuntimeServiceClient, name string) error {
	in := func(call func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return call(ctx)
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}
	var id string
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error {
			reply, err := c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
			id = reply.GetPodSandboxId()
			return err
		},
		func(ctx context.Context) error {
			_, err := c.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
			return err
		},
		func(ctx context.Context) error {
			_, err := c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
			return err
		},
	} {
		if err := in(call); err != nil {
			return err
		}
	}
	return nil
}

// TestPeerEventsStolen: on containerd 1.7 an event goes to one of those who have asked for it.
func TestPeerEventsStolen(t *testing.T) {
	l := start(t, host.Options{Version: parts.Containerd17})
	type told struct{ who, what string }
	heard := make(chan told, 100)
	for _, who := range []string{"first", "second"} {
		s := l.subscribe(t)
		go func() {
			for {
				e, err := s.Recv()
				if err != nil {
					return
				}
				heard <- told{who, e.ContainerEventType.String() + " " + e.ContainerId}
			}
		}()
	}
	l.runPod(t, plainPod)
	time.Sleep(time.Second)
	times := map[string]int{}
	for len(heard) > 0 {
		e := <-heard
		t.Logf("%s was told of %s", e.who, e.what)
		times[e.what]++
	}
	if len(times) == 0 {
		t.Error("no event at all")
	}
	for event, n := range times {
		if n > 1 {
			t.Errorf("%d were told of %s", n, event)
		}
	}
}
