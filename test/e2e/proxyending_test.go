// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// handled is how many calls of a method the runtime has ended, or only begun.
func (w wires) handled(what, method string) float64 {
	w.p.t.Helper()
	m, err := scrape(&http.Client{Timeout: patience(shortest)}, w.p.host.Metrics)
	if err != nil {
		w.p.t.Fatal(err)
	}
	return sum(m, "grpc_server_"+what+"_total{", `grpc_method="`+method+`"`)
}

// events: two clients of GetContainerEvents, one of them through the proxy, are told the same of a pod's life, and when they have gone
// the runtime knows.
func (w wires) events() {
	const method = "GetContainerEvents"
	ctx, cancel := context.WithCancel(w.p.t.Context())
	defer cancel()
	began, ended := w.handled("started", method), w.handled("handled", method)
	var told [2]chan *runtimeapi.ContainerEventResponse
	var last [2]chan error
	for i, c := range []*grpc.ClientConn{w.direct, w.proxied} {
		told[i], last[i] = make(chan *runtimeapi.ContainerEventResponse, 100), make(chan error, 1)
		s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/runtime.v1.RuntimeService/"+method)
		var none []byte
		if err == nil {
			err = errors.Join(s.SendMsg(&none), s.CloseSend())
		}
		if err != nil {
			w.p.t.Fatal(err)
		}
		go func() {
			for {
				var raw []byte
				if err := s.RecvMsg(&raw); err != nil {
					last[i] <- err
					return
				}
				e := &runtimeapi.ContainerEventResponse{}
				if err := proto.Unmarshal(raw, e); err != nil {
					last[i] <- err
					return
				}
				told[i] <- e
			}
		}()
	}
	w.p.eventually(10*time.Second, func() error {
		if n := w.handled("started", method) - began; n != 2 {
			return fmt.Errorf("the runtime has %v clients of %s, want 2", n, method)
		}
		return nil
	})
	run := w.p.pod(bePod("told"))
	if err := w.p.kube.StopPod(w.p.t.Context(), run); err != nil {
		w.p.t.Fatal(err)
	}
	var seen [2][]*runtimeapi.ContainerEventResponse
	for i := range told {
		for over := false; !over; {
			select {
			case e := <-told[i]:
				if e.PodSandboxStatus.GetId() == run.SandboxID { // the first client is told of earlier pods, too
					seen[i] = append(seen[i], e)
				}
				over = e.ContainerId == run.SandboxID && e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
			case err := <-last[i]:
				w.p.t.Fatalf("the stream of %s ended: %v", method, err)
			case <-time.After(patience(shortest)):
				w.p.t.Fatalf("%d events came, and not the end of the pod", len(seen[i]))
			}
		}
	}
	if len(seen[0]) != len(seen[1]) || len(seen[0]) < 4 {
		w.p.t.Fatalf("%d events through the proxy, %d without", len(seen[1]), len(seen[0]))
	}
	for i := range seen[0] {
		if !proto.Equal(seen[0][i], seen[1][i]) {
			w.p.t.Errorf("event %d through the proxy: %v, without %v", i, seen[1][i], seen[0][i])
		}
	}
	cancel()
	for i := range last {
		if err := <-last[i]; status.Code(err) != codes.Canceled {
			w.p.t.Errorf("client %d has gone: %v", i, err)
		}
	}
	w.p.pod(bePod("untold")) // containerd looks after its clients when it has something to tell them
	w.over(method, ended+2)
}

// over waits until the runtime has ended so many calls of a method. containerd takes up to a minute to clean up an exec that was
// given up while it was being started (io.containerd.timeout.cri.defercleanup).
func (w wires) over(method string, want float64) {
	w.p.t.Helper()
	w.p.eventually(90*time.Second, func() error {
		if n := w.handled("handled", method); n != want {
			return fmt.Errorf("the runtime has ended %v calls of %s, want %v", n, method, want)
		}
		return nil
	})
}

// sleeps is an ExecSync that nobody waits for so long, with the argument by which its process is known.
func (w wires) sleeps(run *kubelet.Running, seconds string) []byte {
	w.p.t.Helper()
	raw, err := proto.Marshal(&runtimeapi.ExecSyncRequest{ContainerId: run.Containers["main"], Cmd: []string{"sleep", seconds}})
	if err != nil {
		w.p.t.Fatal(err)
	}
	return raw
}

// asleep reports whether such a process is there.
func asleep(seconds string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && string(text) == "sleep\x00"+seconds+"\x00" {
			return true
		}
	}
	return false
}

// deadline: it is the runtime that ends a call in time. The client, which is no gRPC library, names a deadline and would wait.
func (w wires) deadline(run *kubelet.Running) {
	limit := patience(5 * time.Second) // long enough for the call to reach the runtime on a machine with little time
	for way, socket := range map[string]string{"directly": w.p.host.Socket, "through the proxy": w.p.socket} {
		transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}
		transport.Protocols.SetUnencryptedHTTP2(true)
		client := http.Client{Transport: transport, Timeout: patience(time.Minute)}
		message, ended := w.sleeps(run, "98765431"), w.handled("handled", "ExecSync")
		body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
		req, err := http.NewRequestWithContext(w.p.t.Context(), http.MethodPost, "http://runtime/runtime.v1.RuntimeService/ExecSync", bytes.NewReader(body))
		if err != nil {
			w.p.t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Grpc-Timeout": {fmt.Sprintf("%dm", limit.Milliseconds())}}
		reply, err := client.Do(req)
		code, said := "", ""
		if err == nil {
			_, err = io.Copy(io.Discard, reply.Body)
			code = reply.Header.Get("Grpc-Status") + reply.Trailer.Get("Grpc-Status")
			said = reply.Header.Get("Grpc-Message") + reply.Trailer.Get("Grpc-Message")
			_ = reply.Body.Close() // it has been read
		}
		// grpc-go's server resets a stream whose time is over, unless the method is quicker. Then containerd's own words may be of no known kind: what
		// its client of a shim says of a call whose time is over is no gRPC error, which errgrpc.ToNative (containerd/errdefs) takes for an unknown one.
		reset := err != nil && strings.Contains(err.Error(), "CANCEL; received from peer")
		late := code == fmt.Sprint(uint32(codes.DeadlineExceeded)) ||
			code == fmt.Sprint(uint32(codes.Unknown)) && strings.Contains(said, context.DeadlineExceeded.Error())
		if !reset && !late {
			w.p.t.Errorf("%s: a call of %s ended with grpc-status %q %q, %v", way, limit, code, said, err)
		}
		transport.CloseIdleConnections()
		w.over("ExecSync", ended+1)
	}
}

// cancelled: the runtime ends the call that a client has given up, while the client's connection stays.
func (w wires) cancelled(run *kubelet.Running) {
	for i, c := range []*grpc.ClientConn{w.direct, w.proxied} {
		ctx, cancel := context.WithCancel(w.p.t.Context())
		defer cancel()
		done := make(chan error, 1)
		seconds := fmt.Sprint(98765432 + i)
		message, ended := w.sleeps(run, seconds), w.handled("handled", "ExecSync")
		go func() {
			var reply []byte
			done <- c.Invoke(ctx, "/runtime.v1.RuntimeService/ExecSync", &message, &reply)
		}()
		w.p.eventually(20*time.Second, func() error {
			if !asleep(seconds) {
				return errors.New("nothing has begun")
			}
			return nil
		})
		cancel()
		if err := <-done; status.Code(err) != codes.Canceled {
			w.p.t.Errorf("%s: a call that was given up: %v", c.Target(), err)
		}
		w.over("ExecSync", ended+1) // its process may stay: containerd 2.4 forgets one that was just started
	}
}
