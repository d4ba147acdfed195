// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/listen"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/proxy"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/host"
)

// Writer is this process's name in the ledger and among the status files.
const Writer = "cri"

const (
	// patience is how long the first client waits for the runtime's list: without it a container that came before us is
	// not known. A runtime that is away must not keep the kubelet from seeing that it is.
	patience = 5 * time.Second
	// grace is what calls under way get at the end.
	grace = 2 * time.Second
)

// Daemon is koord-runtime-proxy in front of a runtime that speaks CRI.
type Daemon struct {
	cfg    config.Proxy
	log    *slog.Logger
	host   *host.Host
	proxy  *proxy.Proxy
	list   *cri.Lister
	hooks  *hooks.Registry
	beside *beside
	// serving is closed when the sockets stand.
	serving chan struct{}
}

// newCRI takes the lock, probes the node and connects the parts. version is the bare version, program the text of
// --version. On error everything is given back.
func newCRI(ctx context.Context, l Loaded, version, program string, log *slog.Logger) (_ *Daemon, err error) {
	cfg := l.Config
	d := &Daemon{cfg: cfg, log: log, serving: make(chan struct{}), beside: &beside{runDir: cfg.RunDir, proc: cfg.Host.Proc}}
	if d.list, err = cri.NewLister("unix://" + cfg.RuntimePath()); err != nil {
		return nil, err
	}
	d.beside.look()
	o := host.Options{
		Config: cfg.Node, Writer: Writer, Name: proxy.Program, Program: program, ConfigPath: l.Path,
		Strategy: l.Strategy, Source: l.Source, Edge: proxy.Edge{Version: version}, List: d.list, Log: log,
		Serving: d.serving, Join: proxy.Join(cfg.Hooks, log), ExitsUntold: true, Beside: d.beside.now,
		Kernel: func(k engine.Kernel) engine.Kernel { return proxy.Yield{Kernel: k, Plugin: d.beside.connected.Load} },
	}
	if l.Inline {
		o.Inline = strategyOf
	}
	if d.host, err = host.New(ctx, o); err != nil {
		return nil, errors.Join(err, d.list.Close())
	}
	d.beside.gone = d.host.Engine.Repair
	d.hooks = hooks.New(hooks.Options{Config: cfg.Hooks, Observe: d.observe})
	d.proxy = proxy.New(proxy.Options{
		Config: cfg, Version: version, Log: log, Metrics: d.host.Metrics, Engine: d.host.Engine, List: d.list, Hooks: d.hooks,
		Plugin: d.beside.now,
	})
	return d, nil
}

// strategyOf is the strategy that stands in a configuration file.
func strategyOf(data []byte) (*strategy.Spec, error) {
	_, spec, err := config.LoadProxy(data)
	return spec, err
}

// observe reports calls of hook servers that failed.
func (d *Daemon) observe(c hooks.Call) {
	if c.Err != nil {
		d.host.Engine.Trouble("hook server "+c.Server, c.Hook.String(), c.Err)
	}
}

// Run works until ctx ends.
func (d *Daemon) Run(ctx context.Context) error {
	err := d.host.Run(ctx, d.proxy.Connect,
		run.Component{Name: "plugin watch", Run: d.beside.run},
		run.Component{Name: "hook servers", Run: func(ctx context.Context) error { return d.hooks.Run(ctx, d.registered) }},
		run.Component{Name: "relay", Run: d.relay},
	)
	d.hooks.Close()
	return errors.Join(err, d.list.Close())
}

// registered tells of hook servers that come and go, and of files that cannot be used.
func (d *Daemon) registered(s hooks.Snapshot) {
	names := make([]string, 0, len(s.Servers))
	for i := range s.Servers {
		names = append(names, s.Servers[i].Name)
	}
	d.log.Info("hook servers", "registered", names)
	for _, p := range s.Problems {
		d.host.Engine.Problem(p.File, "hook server", p.Reason)
	}
}

// relay serves the kubelet.
func (d *Daemon) relay(ctx context.Context) error {
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-d.proxy.Synced():
	case <-wait.C:
		d.log.Warn("the runtime has not answered yet, calls are relayed without knowing its containers")
	}
	d.proxy.Serving()
	served := []served{{at: d.cfg.ListenPath(), backend: d.cfg.RuntimePath(), handler: d.proxy}}
	if image := d.cfg.ImagePath(); image != d.cfg.RuntimePath() {
		served = append(served, imageService(d.cfg.ListenPath(), image))
	}
	errs := make(chan error, len(served))
	for _, s := range served {
		l, server, err := d.open(s)
		if err != nil {
			return err
		}
		defer shut(server)
		go func() { errs <- server.Serve(context.WithoutCancel(ctx), l) }()
		d.log.Info("serving", "socket", s.at, "backend", s.backend)
	}
	close(d.serving)
	select {
	case <-ctx.Done():
		return nil
	case err := <-errs:
		return err
	}
}

// served is one socket with what stands behind it.
type served struct {
	at, backend string
	handler     relay.Handler
}

// imageService is the socket for an image service of its own: beside the runtime's, named image-…; its calls are relayed
// and none is looked at.
func imageService(runtime, backend string) served {
	return served{at: filepath.Join(filepath.Dir(runtime), "image-"+filepath.Base(runtime)), backend: backend}
}

func (d *Daemon) open(s served) (net.Listener, *relay.Server, error) {
	if err := os.MkdirAll(filepath.Dir(s.at), 0o755); err != nil {
		return nil, nil, fmt.Errorf("make the socket's folder: %w", err)
	}
	server, err := relay.New(relay.Config{
		Dial: func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", s.backend)
		},
		Handler: s.handler, Events: d.event,
	})
	if err != nil {
		return nil, nil, err
	}
	l, err := listen.Unix(s.at)
	return l, server, err
}

// event reports what the relay has to say.
func (d *Daemon) event(e relay.Event) {
	if e.Err != nil {
		d.host.Engine.Trouble("relay", string(e.Kind)+" "+e.Path, e.Err)
	}
}

// shut lets calls under way end.
func shut(s *relay.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	_ = s.Shutdown(ctx) // what is left is cut
	s.Wait()
}
