// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package proxy is the inside of koord-runtime-proxy for runtimes that speak CRI: one file per verb, which translates for
// the engine, and the connection to the runtime.
//
// Inputs are request and reply messages of the relay; outputs are changed requests, refusals, and calls of external hook
// servers. What stands behind them is the engine's. It may import every shared room; it never imports client-go,
// apimachinery or gRPC, and runs no other program.
package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/mode"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/feed"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Options of New; all are required.
type Options struct {
	mode.Options
	// List asks the runtime.
	List *cri.Lister
	// Plugin reports whether koord-nri is connected to the runtime beside us.
	Plugin func() bool
}

// Proxy decides about CRI calls; it is the relay's Handler.
type Proxy struct {
	*mode.Mode
	o      Options
	engine *engine.Engine
	lister *feed.Lister
	// runtime is the name that the runtime gives itself, "" until it was asked.
	runtime atomic.Pointer[string]
	naming  naming
	// creations number containers that have no id yet.
	creations atomic.Uint64
}

// New makes a proxy. Nothing runs before Connect.
func New(o Options) *Proxy {
	p := &Proxy{o: o, engine: o.Engine}
	p.Mode = mode.New(o.Options, mode.Runtime{Hello: p.hello, List: p.list, Ping: p.ping, Stated: p.readStated, Record: o.List.Record})
	p.lister = &feed.Lister{Engine: o.Engine, Runtime: o.List, Dropped: p.Servers.Drop}
	p.runtime.Store(new(string))
	p.naming.news = make(chan struct{})
	return p
}

// Edge is the way over CRI, for the engine.
type Edge struct {
	// Version of the program, for marks.
	Version string
}

// Mark implements engine.Edge.
func (e Edge) Mark(v *node.View, pl plan.Plan, c *workload.Container) *protocol.Applied {
	return mark.Of(mode.By(v, e.Version), pl, &c.Base, func(s *plan.Setting) bool { return cri.InCreate(v, s) })
}

// Codes of gRPC (google.golang.org/grpc/codes), without the library's weight.
const (
	codeOK                 = 0
	codeUnknown            = 2
	codeFailedPrecondition = 9
)

// refuse is the answer in the runtime's place.
func refuse(err error) relay.Verdict {
	code := uint32(codeFailedPrecondition)
	var r *hooks.Refusal
	if errors.As(err, &r) {
		code = codeUnknown
	}
	return relay.Verdict{Reject: &relay.Rejection{Code: code, Message: err.Error()}}
}

// naming lets a call wait for the moment in which the pod or container that it is about gets its id: the kubelet has the
// runtime's reply to the creation as soon as we have.
type naming struct {
	mu      sync.Mutex
	waiting int
	news    chan struct{}
}

func (n *naming) begin() {
	n.mu.Lock()
	n.waiting++
	n.mu.Unlock()
}

func (n *naming) end() {
	n.mu.Lock()
	n.waiting--
	close(n.news)
	n.news = make(chan struct{})
	n.mu.Unlock()
}

// namingLimit bounds the wait; the work between a reply and the name is a few map operations.
const namingLimit = 200 * time.Millisecond

// wait returns when known is true, or no creation is left to be named.
func (n *naming) wait(ctx context.Context, known func() bool) {
	ctx, cancel := context.WithTimeout(ctx, namingLimit)
	defer cancel()
	for ctx.Err() == nil {
		n.mu.Lock()
		waiting, news := n.waiting, n.news
		n.mu.Unlock()
		if known() || waiting == 0 {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
}
