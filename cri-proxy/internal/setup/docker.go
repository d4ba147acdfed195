// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/dockerproxy"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/listen"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/proxy"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/engine/host"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
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
	hooks *hooks.Registry
	// serving is closed when the socket stands.
	serving chan struct{}
}

func newDocker(ctx context.Context, l Loaded, version, program string, log *slog.Logger) (*dockerDaemon, error) {
	cfg := l.Config
	d := &dockerDaemon{cfg: cfg, log: log, serving: make(chan struct{})}
	backend := docker.NewBackend(cfg.RuntimePath())
	o := host.Options{
		Config: cfg.Node, Writer: Writer, Name: dockerproxy.Program, Program: program, ConfigPath: l.Path,
		Strategy: l.Strategy, Source: l.Source, Edge: dockerproxy.Edge{Version: version}, List: dockerproxy.Lister{Backend: backend},
		Log: log, Join: proxy.Join(cfg.Hooks, log), ExitsUntold: true, Serving: d.serving,
	}
	if l.Inline {
		o.Inline = strategyOf
	}
	var err error
	if d.host, err = host.New(ctx, o); err != nil {
		return nil, err
	}
	at := cfg.Host
	roots := root.Roots{Cgroup: at.CgroupRoot, Proc: at.Proc, Sys: at.Sys, Resctrl: at.Resctrl, Dev: at.Dev}
	files, err := cgroup.Open(roots, d.host.Engine.Views().Load().Kernel.Cgroup, cgroup.Options{})
	if err != nil {
		return nil, err // not reachable: the host has opened them a moment ago
	}
	d.hooks = hooks.New(hooks.Options{Config: cfg.Hooks, Observe: d.observe})
	d.proxy = dockerproxy.New(dockerproxy.Options{
		Config: cfg, Version: version, Log: log, Metrics: d.host.Metrics, Engine: d.host.Engine, Backend: backend, Hooks: d.hooks,
		Read: files.Read,
	})
	d.front, err = docker.New(docker.Options{
		Backend: cfg.RuntimePath(), Handler: d.proxy, Registry: d.host.Engine, DecisionTimeout: hookLimit, Grace: grace,
		Log: slog.New(slog.DiscardHandler), Observe: d.proxy.Observe, // which tells the engine, and that the log
	})
	return d, err // not reachable: backend and handler are given
}

// observe reports calls of hook servers that failed.
func (d *dockerDaemon) observe(c hooks.Call) {
	if c.Err != nil {
		d.host.Engine.Trouble("hook server "+c.Server, c.Hook.String(), c.Err)
	}
}

// Run works until ctx ends.
func (d *dockerDaemon) Run(ctx context.Context) error {
	err := d.host.Run(ctx, d.proxy.Connect,
		run.Component{Name: "hook servers", Run: func(ctx context.Context) error { return d.hooks.Run(ctx, d.registered) }},
		run.Component{Name: "docker", Run: d.serve},
	)
	d.hooks.Close()
	return err
}

// registered tells of hook servers that come and go, and of files that cannot be used.
func (d *dockerDaemon) registered(s hooks.Snapshot) {
	names := make([]string, 0, len(s.Servers))
	for i := range s.Servers {
		names = append(names, s.Servers[i].Name)
	}
	d.log.Info("hook servers", "registered", names)
	for _, p := range s.Problems {
		d.host.Engine.Problem(p.File, "hook server", p.Reason)
	}
}

// serve answers Docker clients.
func (d *dockerDaemon) serve(ctx context.Context) error {
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-d.proxy.Synced():
	case <-wait.C:
		d.log.Warn("the Docker daemon has not answered yet, requests are forwarded without knowing its containers")
	}
	d.proxy.Serving()
	at := d.cfg.ListenPath()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return fmt.Errorf("make the socket's folder: %w", err)
	}
	l, err := listen.Unix(at)
	if err != nil {
		return err
	}
	close(d.serving)
	d.log.Info("serving", "socket", at, "backend", d.cfg.RuntimePath())
	return d.front.Serve(ctx, l)
}
