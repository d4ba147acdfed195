// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package plugin is koord-nri's inside: one file per NRI event, which translates for the engine, and the connection to
// the runtime.
//
// Inputs are NRI events and configuration; outputs are replies to the runtime. What stands behind them is the engine's
// (engine). It may import every shared room; it never imports client-go or apimachinery, runs no other program, and asks
// no API inside a handler.
package plugin

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Options of New. All are required.
type Options struct {
	Config  config.NRI
	Version string
	Log     *slog.Logger
	Metrics *metrics.Engine
	// Engine was made with an [Edge].
	Engine *engine.Engine
}

// Plugin handles NRI events. Its methods are called by the stub, from any goroutine.
type Plugin struct {
	o       Options
	log     *slog.Logger
	m       *metrics.Engine
	engine  *engine.Engine
	session atomic.Pointer[session]
	sleep   func(context.Context, time.Duration) bool // between connections; false when ctx has ended
}

// New makes a plugin. Nothing runs before Run.
func New(o Options) *Plugin {
	return &Plugin{o: o, log: o.Log, m: o.Metrics, engine: o.Engine, sleep: sleep}
}

// Run works until ctx ends: the engine, and the connection to the runtime.
func (p *Plugin) Run(ctx context.Context) error { return p.engine.Run(ctx, p.Connect) }

// Edge is the way over NRI, for the engine.
type Edge struct {
	// Version of the program, for marks.
	Version string
}

// Mark implements engine.Edge.
func (e Edge) Mark(v *node.View, pl plan.Plan, c *workload.Container) *protocol.Applied {
	return nri.Mark(v, pl, c, e.Version)
}

// sandboxOf is the event's pod for the engine.
func sandboxOf(sb *api.PodSandbox) engine.Sandbox {
	return engine.Sandbox{ID: sb.GetId(), Read: func() *workload.Pod { return nri.Pod(sb) }}
}

// arrivalOf is the event's container for the engine.
func arrivalOf(sb *api.PodSandbox, ctr *api.Container) engine.Arrival {
	return engine.Arrival{ID: ctr.GetId(), Read: func(known ...*protocol.Applied) *workload.Container {
		return nri.Container(sb, ctr, known...)
	}}
}

// subject names a container for people.
func subject(sb *api.PodSandbox, ctr *api.Container) string {
	if ctr == nil {
		return sb.GetNamespace() + "/" + sb.GetName()
	}
	return sb.GetNamespace() + "/" + sb.GetName() + "/" + ctr.GetName()
}

// nothing is the reply of an event without one.
type nothing = struct{}

// inMemory runs an event that touches nothing but memory.
func (p *Plugin) inMemory(event metrics.Event, subject string, work func()) error {
	_, err := engine.Guard(p.engine, engine.Call[nothing]{
		Event: event, Subject: subject, Memory: true,
		Work: func(context.Context) (nothing, error) { work(); return nothing{}, nil },
	})
	return err
}

// quick runs an event that reads or writes the kernel, or may wait for somebody who does.
func (p *Plugin) quick(event metrics.Event, subject string, work func(context.Context) error) error {
	_, err := engine.Guard(p.engine, engine.Call[nothing]{
		Event: event, Subject: subject,
		Work: func(ctx context.Context) (nothing, error) { return nothing{}, work(ctx) },
	})
	return err
}

// observe times an event that is not guarded.
func (p *Plugin) observe(event metrics.Event, start time.Time) {
	p.m.ObserveEvent(event, time.Since(start))
}
