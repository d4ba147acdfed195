// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package dockerproxy is the inside of koord-runtime-proxy in mode Docker: one file per moment of a container's life, which
// translates for the engine, and the connection to the daemon.
//
// Inputs are calls of cri-proxy/internal/docker about Kubernetes' containers; outputs are changed bodies, refusals, and
// calls of external hook servers. What stands behind them is the engine's. It may import every shared room; it never
// imports client-go, apimachinery or gRPC, and runs no other program.
package dockerproxy

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"

	adapt "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/mode"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Options of New; all are required.
type Options struct {
	mode.Options
	// Backend asks the daemon.
	Backend *docker.Backend
	// Read reads one value of a cgroup from the kernel.
	Read func(plan.ID) (plan.Value, error)
}

// Proxy decides about calls of Docker's API; it is the docker.Handler.
type Proxy struct {
	*mode.Mode
	o       Options
	engine  *engine.Engine
	creates atomic.Uint64
}

var (
	_ docker.Handler = (*Proxy)(nil)
	_ engine.Edge    = Edge{}
)

// New makes a proxy. Nothing runs before Connect.
func New(o Options) *Proxy {
	p := &Proxy{o: o, engine: o.Engine}
	p.Mode = mode.New(o.Options, mode.Runtime{Hello: p.hello, List: p.list, Ping: p.ping, Stated: p.readStated, Record: p.record})
	return p
}

// Edge is the way over Docker's API, for the engine.
type Edge struct {
	// Version of the program, for marks.
	Version string
}

// Mark implements engine.Edge.
func (e Edge) Mark(v *node.View, pl plan.Plan, c *workload.Container) *protocol.Applied {
	return adapt.Mark(pl, c, mode.By(v, e.Version))
}

// Before implements docker.Handler.
func (p *Proxy) Before(ctx context.Context, c *docker.Call) ([]byte, error) {
	var body []byte
	var err error
	switch {
	case c.Sandbox() && c.Verb == adapt.VerbCreate:
		body, err = p.createPod(ctx, c)
	case c.Sandbox():
	case c.Verb == adapt.VerbCreate:
		body, err = p.create(ctx, c)
	case c.Verb == adapt.VerbUpdate:
		body, err = p.update(ctx, c)
	case c.Verb == adapt.VerbStart, c.Verb == adapt.VerbRestart:
		err = p.start(ctx, c)
	}
	if err != nil {
		return nil, &docker.Refusal{Err: err}
	}
	return body, nil
}

// After implements docker.Handler.
func (p *Proxy) After(ctx context.Context, c *docker.Call, o docker.Outcome) {
	switch {
	case c.Verb == adapt.VerbCreate && !c.Sandbox():
		p.created(c, o)
	case c.Verb == adapt.VerbUpdate && !c.Sandbox():
		p.updated(ctx, c, o)
	case o.Err != nil && c.Verb != adapt.VerbCreate && c.Verb != adapt.VerbUpdate:
		p.lost(ctx, c, o.Err)
	case c.Verb == adapt.VerbRemove && o.Status == http.StatusNotFound:
		p.removed(c) // by a call whose answer was lost, or behind our back
	case !o.OK():
	case c.Sandbox():
		p.afterPod(ctx, c, o)
	default:
		p.afterContainer(ctx, c, o)
	}
}

func (p *Proxy) afterPod(ctx context.Context, c *docker.Call, o docker.Outcome) {
	switch c.Verb {
	case adapt.VerbStart, adapt.VerbRestart:
		p.startedPod(c, o)
	case adapt.VerbStop, adapt.VerbKill:
		p.stoppedPod(ctx, c)
	case adapt.VerbRemove:
		p.removed(c)
	}
}

func (p *Proxy) afterContainer(ctx context.Context, c *docker.Call, o docker.Outcome) {
	switch c.Verb {
	case adapt.VerbStart, adapt.VerbRestart:
		p.started(ctx, c, o)
	case adapt.VerbStop, adapt.VerbKill:
		p.stopped(ctx, c)
	case adapt.VerbRemove:
		p.removed(c)
	}
}

// Observe tells of requests that came to no decision; it is docker.Options' Observe.
func (p *Proxy) Observe(n docker.Note) {
	subject := n.Pod
	if subject == "" {
		subject = "runtime"
	}
	switch n.Result {
	case docker.ResultMalformed, docker.ResultTooLarge:
		p.engine.Unread(eventOf(n.Verb), "request is not decoded: "+n.Err.Error())
	case docker.ResultError, docker.ResultAway:
		p.engine.Trouble(subject, "docker "+n.Verb.String(), n.Err)
	}
}

// eventOf is a verb as metrics name it.
func eventOf(v adapt.Verb) metrics.Event {
	switch v {
	case adapt.VerbCreate:
		return metrics.EventCreateContainer
	case adapt.VerbUpdate:
		return metrics.EventUpdateContainer
	case adapt.VerbStart, adapt.VerbRestart:
		return metrics.EventStartContainer
	case adapt.VerbRemove:
		return metrics.EventRemoveContainer
	}
	return metrics.EventStopContainer
}

// sandbox names a call's pod for the engine.
func sandbox(pod *workload.Pod) engine.Sandbox {
	return engine.Sandbox{ID: pod.ID, Read: func() *workload.Pod { return pod }}
}

// arrival names a container for the engine. One that it does not know is read from the daemon's record.
func arrival(c *docker.Call) engine.Arrival {
	if c.Current != nil {
		return engine.Arrival{ID: c.ID, Read: read(c.Current)}
	}
	return engine.Arrival{ID: c.ID, Read: func(...*protocol.Applied) *workload.Container { return c.Container }}
}

func subject(c *docker.Call) string { return c.Pod.FullName() + "/" + c.Container.Name }

// pending names a container that has no id yet.
func (p *Proxy) pending(sandbox string) string {
	return "creating " + strconv.FormatUint(p.creates.Add(1), 10) + " in " + sandbox
}

// Lister asks the daemon about single containers, for the engine.
type Lister struct{ Backend *docker.Backend }

var _ engine.Lister = Lister{}

// errForeign is a container of somebody else's in a pod's cgroup.
var errForeign = errors.New("is no container of a pod")

// Container implements engine.Lister.
func (l Lister) Container(ctx context.Context, id string, marks ...*protocol.Applied) (*workload.Pod, *workload.Container, error) {
	in, err := l.Backend.Inspect(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if in.Type() != adapt.TypeContainer {
		return nil, nil, errForeign
	}
	sandbox, err := l.Backend.Inspect(ctx, in.SandboxID())
	if err != nil {
		return nil, nil, err
	}
	return sandbox.Pod(), in.Container(marks...), nil
}
