// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// proxyHooks: a pod's life, with a resize in it, is told to a hook server in all seven calls of the protocol, on a unix socket and over TCP.
func proxyHooks(p *viaProxy) {
	ctx := p.t.Context()
	p.upProxy(standard, nil)
	for _, network := range []string{"unix", "tcp"} {
		server, tries := p.hookServer(network), 0
		p.eventually(10*time.Second, func() error {
			tries++
			name := fmt.Sprintf("%s-asks-%d", network, tries)
			p.pod(bePod(name))
			if !server.saw(hook.PreRunPodSandbox, name) {
				return errors.New("the hook server has not been asked")
			}
			return nil
		})
		name := network + "-life"
		run := p.pod(lsPod(name))
		if err := p.resizeMain(run, kubelet.Resources{Limits: map[string]kubelet.Quantity{"cpu": "400m"}}); err != nil {
			p.t.Fatal(err)
		}
		if err := p.kube.StopPod(ctx, run); err != nil {
			p.t.Fatal(err)
		}
		p.eventually(5*time.Second, func() error {
			for k := range hook.NumKinds {
				if !server.saw(k, name) {
					return fmt.Errorf("%s: %s of pod %s has not been called", network, k, name)
				}
			}
			return nil
		})
	}
}

// hookServer is asked of everything, wants nothing and remembers what it was told.
type hookServer struct {
	mu     sync.Mutex
	told   map[string][][]byte // by method
	broken bool
}

// saw reports a call that was told text.
func (h *hookServer) saw(k hook.Kind, text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.told[k.Method()], func(in []byte) bool { return bytes.Contains(in, []byte(text)) })
}

// fail makes every later answer an error.
func (h *hookServer) fail() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = true
}

func (h *hookServer) handle(_ any, stream grpc.ServerStream) error {
	var in []byte
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	method, _ := grpc.MethodFromServerStream(stream) // "" is no hook's
	h.mu.Lock()
	h.told[method] = append(h.told[method], in)
	broken := h.broken
	h.mu.Unlock()
	if broken {
		return errors.New("cannot answer")
	}
	return stream.SendMsg(&[]byte{})
}

// hookServer starts a server on a unix socket or on a loopback address and registers it for every hook, in place of the one before.
func (p *viaProxy) hookServer(network string) *hookServer {
	p.t.Helper()
	dir := filepath.Dir(p.config)
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(dir, "hook.sock")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		p.t.Fatal(err)
	}
	h := &hookServer{told: map[string][][]byte{}}
	s := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(h.handle))
	go func() { _ = s.Serve(l) }() // until Stop
	p.t.Cleanup(s.Stop)
	var all []string
	for k := range hook.NumKinds {
		all = append(all, k.String())
	}
	text, err := json.Marshal(map[string]any{"remote-endpoint": l.Addr().String(), "failure-policy": "Ignore", "runtime-hooks": all})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "hookserver.d"), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hookserver.d", "lab.json"), text, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return h
}
