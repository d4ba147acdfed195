// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/nri-plugin/internal/plugin"
)

// Writer is this process's name in the ledger and among the status files.
const Writer = "nri"

// statusEvery is how often the status file is written anew without news; news wait for statusPause, so that a storm of
// problems does not become a storm of writes.
const (
	statusEvery = 5 * time.Second
	statusPause = 50 * time.Millisecond
)

// Daemon is koord-nri, put together.
type Daemon struct {
	cfg     config.NRI
	loaded  Loaded
	version string
	program string
	log     *slog.Logger
	started time.Time

	lock   *lock.Lock
	ledger *ledger.Ledger
	writer *writer
	views  *plugin.Views
	plugin *plugin.Plugin
	list   *cri.Lister
	reg    *prometheus.Registry
	probe  *prober
	watch  *handoff.Watcher
}

// New takes the lock, probes the node and connects the parts. version is the bare version, program the text of
// --version. On error everything is given back.
func New(ctx context.Context, l Loaded, version, program string, log *slog.Logger) (_ *Daemon, err error) {
	d := &Daemon{cfg: l.Config, loaded: l, version: version, program: program, log: log, started: time.Now(), reg: prometheus.NewRegistry()}
	if d.lock, err = lock.Acquire(lock.NRIPath(d.cfg.RunDir)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close(context.WithoutCancel(ctx)))
		}
	}()
	m, err := metrics.NewNRI(d.reg)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	roots := root.Roots{
		Cgroup: d.cfg.Host.CgroupRoot, Proc: d.cfg.Host.Proc, Sys: d.cfg.Host.Sys, Resctrl: d.cfg.Host.Resctrl, Dev: d.cfg.Host.Dev,
	}
	past := d.readPast()
	d.probe = &prober{roots: roots, cfg: d.cfg, log: log, every: probeEvery, own: past.OwnsMemoryMin}
	static, err := d.probe.first(ctx)
	if err != nil {
		return nil, err
	}
	if d.ledger, err = ledger.Open(d.cfg.RunDir, Writer, ledger.Options{}); err != nil {
		return nil, err
	}
	if d.writer, err = newWriter(roots, &static.Kernel, d.ledger, static.Weight, static.PodWeight); err != nil {
		return nil, err
	}
	d.views = plugin.NewViews(d.cfg, static, l.Strategy, l.Source)
	if d.watch, err = handoff.NewWatcher(handoff.Options{RunDir: d.cfg.RunDir, StateDir: d.cfg.StateDir}); err != nil {
		return nil, err
	}
	d.views.SetHandoff(d.watch.Snapshot())
	return d, d.connect(roots, static, m, past)
}

// connect makes the plugin.
func (d *Daemon) connect(roots root.Roots, static plugin.Static, m *metrics.NRI, past *plugin.Past) error {
	boot, err := roots.BootID()
	if err != nil {
		return err
	}
	o := plugin.Options{
		Boot: boot, Config: d.cfg, Version: d.version, Log: d.log, Metrics: m, Journal: d.ledger, Kernel: d.writer, Views: d.views,
		Past: past, Live: live(roots, &static.Kernel), CgroupRoot: searchRoot(roots, &static.Kernel),
		OnFormula: func(f unit.WeightFormula) {
			if err := d.writer.open(f, static.PodWeight); err != nil {
				d.log.Error("change the weight formula", "err", err)
			}
		},
	}
	o.Groups = resctrl.FS(roots.Resctrl) // may be mounted later; until then no group is decided
	if d.cfg.Host.CRIEndpoint != "" {
		list, err := cri.NewLister(d.cfg.Host.CRIEndpoint)
		if err != nil {
			return err
		}
		d.list, o.List = list, list
	}
	d.plugin = plugin.New(o)
	d.probe.own = d.plugin.OwnsMemoryMin // what the earlier life had is the plugin's now
	return nil
}

// readPast reads what an earlier life has written. A ledger that cannot be read costs the bases of resized containers,
// not the start.
func (d *Daemon) readPast() *plugin.Past {
	records, torn, err := ledger.ReadAll(d.cfg.RunDir)
	if err != nil || torn > 0 {
		d.log.Warn("ledger is incomplete", "tornLines", torn, "err", err)
	}
	return plugin.NewPast(records)
}

// Run works until ctx ends.
func (d *Daemon) Run(ctx context.Context) error {
	notify := run.NewNotifier(os.Getenv)
	g := run.Group{
		OnReady:    func() { _ = notify.Ready() },
		OnStopping: func() { _ = notify.Stopping() },
	}
	g.Add(run.Component{Name: "ledger", Run: d.ledger.Run, Stop: d.close})
	if err := d.addMetrics(ctx, &g); err != nil {
		return errors.Join(err, d.close(context.WithoutCancel(ctx)))
	}
	g.Add(run.Component{Name: "handoff", Run: func(ctx context.Context) error { return d.watch.Run(ctx, d.setHandoff) }})
	file := &strategyFile{path: d.cfg.StrategyFile, set: d.views.SetFile, log: d.log, refused: func(path string, err error) {
		d.plugin.Problem(path, "strategy", err.Error())
	}}
	if d.loaded.Inline {
		file.path, file.inline = d.loaded.Path, true
	}
	g.Add(run.Component{Name: "strategy", Run: file.run})
	g.Add(run.Component{Name: "probe", Run: func(ctx context.Context) error { return d.probe.run(ctx, d.renew) }})
	g.Add(run.Component{Name: "status", Run: d.writeStatus})
	g.Add(run.Component{Name: "watchdog", Run: func(ctx context.Context) error { return notify.Watchdog(ctx, nil) }})
	g.Add(run.Component{Name: "plugin", Run: d.plugin.Run})
	return g.Run(ctx)
}

// renew takes in what a later probe found: resctrl may have been mounted.
func (d *Daemon) renew(s plugin.Static) {
	v := d.views.Load()
	if err := d.writer.open(v.Runtime.Weight, v.Runtime.PodWeight); err != nil {
		d.log.Error("open the cgroup filesystem again", "err", err)
	}
	d.views.SetStatic(s)
}

// setHandoff takes in the node agent's files. A file that was refused is reported; its last good content holds.
func (d *Daemon) setHandoff(s handoff.Snapshot) {
	d.views.SetHandoff(s)
	for _, p := range s.Problems {
		d.plugin.Problem(p.File, "handoff", p.Reason)
	}
}

func (d *Daemon) addMetrics(ctx context.Context, g *run.Group) error {
	l, err := metrics.Listen(ctx, d.cfg.Metrics.Address)
	if err != nil || l == nil {
		return err
	}
	g.Add(run.Component{Name: "metrics", Run: func(ctx context.Context) error {
		return metrics.Serve(ctx, l, d.reg, d.health)
	}})
	return nil
}

var errDisconnected = errors.New("not connected to the runtime")

func (d *Daemon) health() error {
	if !d.plugin.Connected() {
		return errDisconnected
	}
	return nil
}

// writeStatus keeps the status file up to date.
func (d *Daemon) writeStatus(ctx context.Context) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		s := d.plugin.Status()
		s.Start, s.Written, s.Program, s.ProgramVersion = d.started, time.Now(), "koord-nri", d.program
		s.ConfigPath, s.ConfigLoaded = d.loaded.Path, d.started
		if err := status.Write(d.cfg.RunDir, Writer, s); err != nil {
			d.log.Error("write status", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(statusPause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-d.plugin.StatusChanged():
		}
	}
}

// close gives back what New took; parts that were not reached are nil.
func (d *Daemon) close(ctx context.Context) error {
	var errs []error
	if d.list != nil {
		errs = append(errs, d.list.Close())
	}
	if d.writer != nil {
		errs = append(errs, d.writer.close(ctx))
	}
	if d.ledger != nil {
		errs = append(errs, d.ledger.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Release())
	}
	return errors.Join(errs...)
}
