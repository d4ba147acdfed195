// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"log/slog"

	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/engine/host"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/nri-plugin/internal/plugin"
)

// Writer is this process's name in the ledger and among the status files.
const Writer = "nri"

// Daemon is koord-nri, put together.
type Daemon struct {
	host   *host.Host
	plugin *plugin.Plugin
	list   *lister
	sched  *scheduling
	// realTime is asked for, proc is where the kernel says whether that hinders somebody.
	realTime bool
	proc     proc.FS
}

// New takes the lock, probes the node and connects the parts. version is the bare version, program the text of
// --version. On error everything is given back.
func New(ctx context.Context, l Loaded, version, program string, log *slog.Logger) (_ *Daemon, err error) {
	d := &Daemon{sched: newScheduling(log), realTime: l.Config.RealTime, proc: proc.FS(l.Config.Host.Proc)}
	o := host.Options{
		Config: l.Config.Node, Writer: Writer, Name: "koord-nri", Program: program, ConfigPath: l.Path,
		Again: l.Again, Strategy: l.Strategy, Source: l.Source, Inline: l.Inline, Edge: plugin.Edge{Version: version}, Log: log,
		Scheduling:     d.sched.String,
		UpdatesAwaited: true, // containerd and CRI-O answer the kubelet behind PostUpdateContainer
		Quiet:          run.NewCollector().Quiet,
	}
	d.list = &lister{endpoint: l.Config.Host.CRIEndpoint, name: func() string {
		return d.host.Engine.Views().Load().Runtime.Name // asked after a Synchronize, so there is one
	}}
	o.List = d.list
	if d.host, err = host.New(ctx, o); err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.plugin = plugin.New(plugin.Options{Config: l.Config, Version: version, Log: log, Metrics: d.host.Metrics, Engine: d.host.Engine})
	return d, nil
}

// Run works until ctx ends.
func (d *Daemon) Run(ctx context.Context) error {
	// Beside the connection: a kernel takes some 40 ms to list its functions, and what a start probes and reads is no handler's work.
	realTime := run.Component{Name: "real time", Run: func(ctx context.Context) error {
		if d.sched.enter(d.realTime, d.proc) {
			d.sched.watch(ctx, d.host.Engine.Problem)
		}
		<-ctx.Done() // who returns ends all
		return nil
	}}
	return errors.Join(d.host.Run(ctx, d.plugin.Connect, realTime), d.close())
}

func (d *Daemon) close() error { return d.list.close() }
