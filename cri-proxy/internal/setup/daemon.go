// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/exits"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/mode"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/proxy"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/relay"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/beside"
	"github.com/koord-rt/koord-rt/engine/host"
)

// Writer is this process's name in the ledger and among the status files.
const Writer = "cri"

// Daemon is koord-runtime-proxy in front of a runtime that speaks CRI.
type Daemon struct {
	cfg    config.Proxy
	log    *slog.Logger
	host   *host.Host
	proxy  *proxy.Proxy
	list   *cri.Lister
	hooks  *hookServers
	exits  *exits.Watch
	beside *beside.Watch
	// serving is closed when the sockets stand.
	serving chan struct{}
}

// newCRI takes the lock, probes the node and connects the parts. version is the bare version, program the text of
// --version. On error everything is given back.
func newCRI(ctx context.Context, l Loaded, version, program string, log *slog.Logger) (_ *Daemon, err error) {
	cfg := l.Config
	d := &Daemon{cfg: cfg, log: log, serving: make(chan struct{}), beside: beside.New(cfg.RunDir, cfg.Host.Proc, Writer)}
	if d.list, err = cri.NewLister("unix://" + cfg.RuntimePath()); err != nil {
		return nil, err
	}
	d.beside.Look()
	o := host.Options{
		Config: cfg.Node, Writer: Writer, Name: mode.Program, Program: program, ConfigPath: l.Path,
		Again: l.Again, Strategy: l.Strategy, Source: l.Source, Inline: l.Inline, Edge: proxy.Edge{Version: version}, List: d.list, Log: log,
		Serving: d.serving, Join: hooks.Join(cfg.Hooks, log), ExitsUntold: true, Beside: d.beside.Now,
	}
	var yield *beside.Yield
	o.Kernel = func(k engine.Kernel) engine.Kernel {
		yield = &beside.Yield{Kernel: k, Covered: d.beside.Covered}
		return yield
	}
	if d.host, err = host.New(ctx, o); err != nil {
		return nil, errors.Join(err, d.list.Close())
	}
	beneath, err := d.host.Place()
	if err != nil {
		return nil, errors.Join(err, d.host.Close(ctx), d.list.Close())
	}
	d.list.Beneath(beneath)
	files, err := cgroupsOf(cfg, d.host.Engine)
	if err != nil {
		return nil, errors.Join(err, d.host.Close(ctx), d.list.Close())
	}
	d.hooks = newHookServers(cfg.Hooks, d.host.Engine, log)
	d.proxy = proxy.New(proxy.Options{Options: modeOptions(cfg, version, d.host, d.hooks, log), List: d.list, Plugin: d.beside.InPath})
	d.exits = exits.New(exits.Options{Engine: d.host.Engine, Files: files, Ended: d.proxy.Ended})
	d.beside.OnGone(func() {
		d.exits.Look() // the plugin has kept the sums so far
		d.host.Engine.TakeBack(yield.Left())
		d.host.Engine.Repair()
	})
	return d, nil
}

// Run works until ctx ends.
func (d *Daemon) Run(ctx context.Context) error {
	err := d.host.Run(ctx, d.proxy.Connect,
		run.Component{Name: "plugin watch", Run: d.beside.Run},
		run.Component{Name: "exits", Run: d.exits.Run},
		run.Component{Name: "hook servers", Run: d.hooks.run},
		run.Component{Name: "relay", Run: d.relay},
	)
	d.hooks.Close()
	return errors.Join(err, d.list.Close())
}

// relay serves the kubelet.
func (d *Daemon) relay(ctx context.Context) error {
	if !awaitList(ctx, d.proxy.Synced(), d.log) {
		return nil
	}
	d.proxy.Serving()
	server, err := relay.New(d.relayConfig())
	if err != nil {
		return err
	}
	defer shut(ctx, server)
	l, err := socket(&d.cfg)
	if err != nil {
		return err
	}
	errs := make(chan error, 1)
	go func() { errs <- server.Serve(context.WithoutCancel(ctx), l) }()
	d.log.Info("serving", "socket", d.cfg.ListenPath(), "backend", d.cfg.RuntimePath(), "images", d.cfg.ImagePath())
	close(d.serving)
	select {
	case <-ctx.Done():
		return nil
	case err := <-errs:
		return err
	}
}

// relayConfig is the way to the runtime. Where the images are somebody else's, connections that begin with a call about
// images go there, and none of their calls is looked at.
func (d *Daemon) relayConfig() relay.Config {
	c := relay.Config{Dial: dial(d.cfg.RuntimePath()), Handler: d.proxy, Events: d.event}
	if image := d.cfg.ImagePath(); image != d.cfg.RuntimePath() {
		c.Route = func(path string) func(context.Context) (net.Conn, error) {
			if proxy.OfImages(path) {
				return dial(image)
			}
			return nil
		}
	}
	return c
}

func dial(path string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", path) }
}

// event reports what the relay has to say.
func (d *Daemon) event(e relay.Event) {
	if e.Err != nil {
		d.host.Engine.Trouble("relay", string(e.Kind)+" "+e.Path, e.Err)
	}
}

// shut lets calls under way end, and what follows on those that have ended; what takes longer is cut.
func shut(ctx context.Context, s *relay.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	_ = s.Shutdown(ctx) // its error says that something was cut
	s.Wait()
}
