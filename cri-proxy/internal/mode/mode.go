// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package mode is what koord-runtime-proxy is in each of its modes, whatever the runtime behind it speaks: its name in marks,
// the session with the runtime, the hook servers, and the updates whose answer may be lost.
//
// Inputs are the engine, the configuration and the questions that a way to a runtime can ask (Runtime); outputs are those
// parts, connected. It may import ask, doubt, hooks, the engine, api/config, daemon/metrics and model; it knows no message of
// a runtime.
package mode

import (
	"context"
	"log/slog"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/ask"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/doubt"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/feed"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/node"
)

// Program is the name of koord-runtime-proxy in marks.
const Program = "koord-runtime-proxy"

// By says who has set a container's values, for its mark; version is the bare one.
func By(v *node.View, version string) mark.By {
	return mark.By{Generation: v.Generation, Program: Program, Version: version}
}

// Options of a proxy in any mode; all are required.
type Options struct {
	Config  config.Proxy
	Version string
	Log     *slog.Logger
	Metrics *metrics.Engine
	// Engine was made with the mode's Edge, hooks.Join and ExitsUntold.
	Engine *engine.Engine
	// Hooks calls external hook servers.
	Hooks *hooks.Registry
}

// Runtime is what a mode asks its runtime; all are required.
type Runtime struct {
	// Hello, List and Ping are feed.Options'.
	Hello func(ctx context.Context) error
	List  func(ctx context.Context, first bool) (missed bool, err error)
	Ping  func(ctx context.Context) error
	// Stated is what was stated of a pod, by its sandbox's id.
	Stated func(ctx context.Context, sandbox string) (ask.Stated, error)
	// Record is the runtime's record of a container.
	Record func(ctx context.Context, id string) (doubt.Read, error)
}

// Mode is a proxy's part that is the same in each.
type Mode struct {
	// Servers are the hook servers, Updates those that are under way or in doubt.
	Servers *ask.Servers
	Updates *doubt.Updates

	keeper *feed.Keeper
}

// New connects the parts. Nothing runs before Connect.
func New(o Options, r Runtime) *Mode {
	keeper := feed.New(feed.Options{Pace: o.Config.Reconnect, Engine: o.Engine, Hello: r.Hello, List: r.List, Ping: r.Ping})
	return &Mode{
		keeper:  keeper,
		Servers: ask.New(ask.Options{Hooks: o.Hooks, Engine: o.Engine, Read: r.Stated}),
		Updates: doubt.New(doubt.Options{Engine: o.Engine, Record: r.Record, Look: keeper.Look}),
	}
}

// Connect keeps what is known in step with the runtime until ctx ends. Calls are passed on whether it has succeeded or not.
func (m *Mode) Connect(ctx context.Context) { m.keeper.Run(ctx) }

// Synced is closed when the runtime's containers have been taken in for the first time.
func (m *Mode) Synced() <-chan struct{} { return m.keeper.Synced() }

// Serving says that clients may come from now on.
func (m *Mode) Serving() { m.keeper.Serving() }

// Look asks the runtime soon, also where it was away.
func (m *Mode) Look() { m.keeper.Look() }
