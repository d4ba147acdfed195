// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/dockerproxy"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/exits"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/mode"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/engine/host"
)

// Runner is koord-runtime-proxy in one of its modes.
type Runner interface {
	// Run works until ctx ends.
	Run(ctx context.Context) error
}

// New takes the lock, probes the node and connects the parts for the configured mode. version is the bare version, program
// the text of --version. On error everything is given back.
func New(ctx context.Context, l Loaded, version, program string, log *slog.Logger) (Runner, error) {
	if l.Config.BackendMode == config.BackendDocker {
		return newDocker(ctx, l, version, program, log)
	}
	return newCRI(ctx, l, version, program, log)
}

// hookLimit bounds one decision in mode Docker with the questions to the daemon and to hook servers, whose own limits lie
// below it; the engine's part keeps to its deadline.
const hookLimit = 30 * time.Second

// dockerDaemon is koord-runtime-proxy in front of a Docker daemon. koord-nri never is beside it: dockerd has no NRI.
type dockerDaemon struct {
	cfg   config.Proxy
	log   *slog.Logger
	host  *host.Host
	proxy *dockerproxy.Proxy
	front *docker.Proxy
	hooks *hookServers
	exits *exits.Watch
	// serving is closed when the socket stands.
	serving chan struct{}
}

func newDocker(ctx context.Context, l Loaded, version, program string, log *slog.Logger) (*dockerDaemon, error) {
	cfg := l.Config
	d := &dockerDaemon{cfg: cfg, log: log, serving: make(chan struct{})}
	backend := docker.NewBackend(cfg.RuntimePath())
	o := host.Options{
		Config: cfg.Node, Writer: Writer, Name: mode.Program, Program: program, ConfigPath: l.Path,
		Again: l.Again, Strategy: l.Strategy, Source: l.Source, Inline: l.Inline, Edge: dockerproxy.Edge{Version: version}, List: dockerproxy.Lister{Backend: backend},
		Log: log, Join: hooks.Join(cfg.Hooks, log), ExitsUntold: true, Serving: d.serving,
	}
	var err error
	if d.host, err = host.New(ctx, o); err != nil {
		return nil, err
	}
	files, err := cgroupsOf(cfg, d.host.Engine)
	if err != nil {
		return nil, errors.Join(err, d.host.Close(ctx))
	}
	d.hooks = newHookServers(cfg.Hooks, d.host.Engine, log)
	d.proxy = dockerproxy.New(dockerproxy.Options{Options: modeOptions(cfg, version, d.host, d.hooks, log), Backend: backend, Read: files.Read})
	d.exits = exits.New(exits.Options{Engine: d.host.Engine, Files: files, Ended: d.proxy.Ended})
	d.front, err = docker.New(docker.Options{
		Backend: cfg.RuntimePath(), Handler: d.proxy, Registry: d.host.Engine, DecisionTimeout: hookLimit, Grace: grace,
		Log: slog.New(slog.DiscardHandler), Observe: d.proxy.Observe, // which tells the engine, and that the log
	})
	return d, err // not reachable: backend and handler are given
}

// Run works until ctx ends.
func (d *dockerDaemon) Run(ctx context.Context) error {
	err := d.host.Run(ctx, d.proxy.Connect,
		run.Component{Name: "exits", Run: d.exits.Run},
		run.Component{Name: "hook servers", Run: d.hooks.run},
		run.Component{Name: "docker", Run: d.serve},
	)
	d.hooks.Close()
	return err
}

// serve answers Docker clients.
func (d *dockerDaemon) serve(ctx context.Context) error {
	if !awaitList(ctx, d.proxy.Synced(), d.log) {
		return nil
	}
	d.proxy.Serving()
	l, err := socket(&d.cfg)
	if err != nil {
		return err
	}
	close(d.serving)
	d.log.Info("serving", "socket", d.cfg.ListenPath(), "backend", d.cfg.RuntimePath())
	return d.front.Serve(ctx, l)
}
