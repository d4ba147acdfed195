// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package host binds the engine to this machine: lock, probe, ledger, handoff, strategy file, metrics and status, as
// components of one run group.
//
// Input is a valid configuration and the program's edge; output is an engine that is fed. All building is here and nothing
// else; the deciding and writing is done by the rooms it connects. It imports the engine and shared rooms but adapt.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/birth"
	"github.com/koord-rt/koord-rt/kernel/place"
	"github.com/koord-rt/koord-rt/kernel/resctrl"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// statusEvery is how often the status file is written anew without news; news wait for statusPause, so that a storm of
// problems does not become a storm of writes.
const (
	statusEvery = 5 * time.Second
	statusPause = 50 * time.Millisecond
)

// Options of New. All are required unless a comment says otherwise.
type Options struct {
	Config config.Node
	// Writer is this process's name in the ledger, among the status files and of its lock: "nri".
	Writer string
	// Program is the text of --version: "koord-nri v1.2 (…)"; Name its first word.
	Name, Program string
	// ConfigPath is where Config was read, "" for defaults.
	ConfigPath string
	// Again reads the configuration file when it has changed; nil without one.
	Again Again
	// Strategy was found at start, nil for none; Source names where. Inline says that it is the configuration file.
	Strategy *strategy.Spec
	Source   string
	Inline   bool
	Edge     engine.Edge
	// List asks the runtime what its events do not tell; may be nil.
	List engine.Lister
	// Kernel, where given, stands between the engine and its writes.
	Kernel func(engine.Kernel) engine.Kernel
	// Join, ExitsUntold, UpdatesUntold, UpdatesAwaited, Beside and Quiet are the engine's.
	Join                                       func(ours, foreign plan.Plan) plan.Plan
	ExitsUntold, UpdatesUntold, UpdatesAwaited bool
	Beside                                     func() bool
	Quiet                                      func()
	// Usable lets the program begin though its run directory cannot be used: nothing is written to the kernel until it can, and then Usable
	// is called, when the ledgers have been read again, with what lets writes begin, which it must call. Nil: that ends the start, as it
	// has to for who may be there once only.
	Usable func(begin func())
	// Serving is closed when the program answers on its sockets; nil for one without.
	Serving <-chan struct{}
	// Scheduling says how the kernel schedules this process, for its status file; nil for a program that tells nothing of it.
	Scheduling func() string
	Log        *slog.Logger
}

// Host is an engine on this machine with all that feeds it.
type Host struct {
	// Engine is ready; Metrics are its.
	Engine  *engine.Engine
	Metrics *metrics.Engine

	o       Options
	started time.Time
	run     *runDir
	writer  *writer
	reg     *prometheus.Registry
	probe   *prober
	watch   *handoff.Watcher
	written *configFile
	births  *birth.Watcher
	more    Extension
}

// New takes the lock, probes the node and connects the parts. On error everything is given back.
func New(ctx context.Context, o Options) (_ *Host, err error) {
	h := &Host{o: o, started: time.Now(), reg: prometheus.NewRegistry(), births: birth.New()}
	h.written = &configFile{again: o.Again, log: o.Log, problem: func(path string, err error) {
		h.Engine.Problem(path, "configuration", err.Error())
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err = h.takeRunDir(); err != nil {
		return nil, err
	}
	if h.Metrics, err = metrics.NewEngine(h.reg, o.Writer); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	at := o.Config.Host
	roots := root.Roots{Cgroup: at.CgroupRoot, Proc: at.Proc, Sys: at.Sys, Resctrl: at.Resctrl, Dev: at.Dev}
	records := h.readLedger()
	past := engine.NewPast(records)
	h.probe = &prober{roots: roots, cfg: o.Config, log: o.Log, every: probeEvery, own: past.OwnsMemoryMin, again: make(chan struct{}, 1)}
	static, err := h.probe.first(ctx)
	if err != nil {
		return nil, err
	}
	views := engine.NewViews(o.Config, static, o.Strategy, o.Source)
	formulas := views.Load().Runtime // the configuration may name one
	if h.writer, err = newWriter(roots, &static.Kernel, h.run, !o.UpdatesUntold, formulas.Weight, formulas.PodWeight); err != nil {
		return nil, err
	}
	h.run.ledger.Compare(h.writer.found)
	past.Keep(h.writer.Recall(records))
	h.watch = handoff.NewWatcher(handoff.Options{RunDir: o.Config.RunDir, StateDir: o.Config.StateDir})
	views.SetHandoff(h.watch.Snapshot())
	if err = h.connect(roots, static, views, past); err != nil {
		return nil, err
	}
	return h, nil
}

// Place finds pods and containers in the cgroups that the host has found, for a runtime that does not tell where they are.
func (h *Host) Place() (place.FS, error) {
	at := h.o.Config.Host
	roots := root.Roots{Cgroup: at.CgroupRoot, Proc: at.Proc, Sys: at.Sys, Resctrl: at.Resctrl, Dev: at.Dev}
	return place.New(roots, h.Engine.Views().Load().Kernel.Cgroup, at.KubepodsRoot)
}

// connect makes the engine.
func (h *Host) connect(roots root.Roots, static engine.Static, views *engine.Views, past *engine.Past) error {
	boot, err := roots.BootID()
	if err != nil {
		return err
	}
	var kernel engine.Kernel = h.writer
	if h.o.Kernel != nil {
		kernel = h.o.Kernel(kernel)
	}
	h.Engine = engine.New(engine.Options{
		Boot: boot, Config: h.o.Config, Log: h.o.Log, Metrics: h.Metrics, Edge: h.o.Edge, Journal: h.run, Kernel: kernel,
		Join: h.o.Join, ExitsUntold: h.o.ExitsUntold, UpdatesUntold: h.o.UpdatesUntold, UpdatesAwaited: h.o.UpdatesAwaited, Beside: h.o.Beside, Leave: h.leaving,
		Views: views, Past: past, Live: live(roots, &static.Kernel, h.o.Config.Host.CDIDirs, h.probe.soon), CgroupRoot: searchRoot(roots, &static.Kernel), List: h.o.List,
		Births: h.births, Quiet: h.o.Quiet,
		Groups: resctrl.FS(roots.Resctrl), // may be mounted later; until then no group is decided
		OnFormula: func(f unit.WeightFormula) {
			if err := h.writer.setWeight(f); err != nil {
				h.o.Log.Error("change the weight formula", "err", err)
			}
		},
	})
	// A copy that a power cut has torn, say: what changes from here on the Watcher tells.
	h.setProblems(h.watch.Snapshot().Problems)
	h.probe.own = h.Engine.OwnsMemoryMin // what the earlier life had is the engine's now
	h.probe.follow(func(reason string) { h.Engine.Problem("node", "probe", reason) })
	return nil
}

// readLedger reads what an earlier life has written. A ledger that cannot be read costs the bases of resized containers and what
// that life has left behind, not the start.
func (h *Host) readLedger() []journal.Record {
	records, torn, err := ledger.ReadAll(h.o.Config.RunDir)
	if err != nil || torn > 0 {
		h.o.Log.Warn("ledger is incomplete", "tornLines", torn, "err", err)
	}
	return records
}

// Relearn reads the ledgers again, of all who write on this node: one of them has gone, whose part is ours now.
func (h *Host) Relearn() {
	records := h.readLedger()
	past := engine.NewPast(records)
	past.Keep(h.writer.Recall(records))
	h.Engine.Learn(past)
}

// Run works until ctx ends. beside keeps the connection to the runtime; more are the program's own components.
func (h *Host) Run(ctx context.Context, beside func(context.Context), more ...run.Component) error {
	notify := run.NewNotifier(os.Getenv)
	g := run.Group{
		OnReady:    func() { go h.ready(ctx, notify) },
		OnStopping: func() { _ = notify.Stopping() },
	}
	g.Add(run.Component{Name: "ledger", Run: h.keepLedger, Stop: h.Close})
	if err := h.addMetrics(ctx, &g); err != nil {
		return errors.Join(err, h.Close(context.WithoutCancel(ctx)))
	}
	g.Add(run.Component{Name: "handoff", Run: func(ctx context.Context) error { return h.watch.Run(ctx, h.setHandoff) }})
	h.addFiles(&g)
	g.Add(run.Component{Name: "births", Run: h.births.Run})
	g.Add(run.Component{Name: "probe", Run: func(ctx context.Context) error { return h.probe.run(ctx, h.renew) }})
	g.Add(run.Component{Name: "status", Run: h.writeStatus})
	g.Add(run.Component{Name: "watchdog", Run: func(ctx context.Context) error { return notify.Watchdog(ctx, h.o.Log, h.alive) }})
	var serving sync.WaitGroup
	g.Add(run.Component{Name: "engine", Run: func(ctx context.Context) error {
		life, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		go func() {
			<-ctx.Done()
			serving.Wait() // calls under way still need the engine
			cancel()
		}()
		return h.Engine.Run(life, func(context.Context) { beside(ctx) })
	}})
	for _, c := range more {
		work := c.Run
		serving.Add(1)
		c.Run = func(ctx context.Context) error {
			defer serving.Done()
			return work(ctx)
		}
		g.Add(c)
	}
	return g.Run(ctx)
}

// addFiles follows the node's own files: its configuration, and the strategy that stands there or in a file of its own.
func (h *Host) addFiles(g *run.Group) {
	own := &strategyFile{path: h.o.Config.StrategyFile, set: h.Engine.Views().SetFile, log: h.o.Log, holds: h.o.Strategy, refused: func(path string, err error) {
		h.Engine.Problem(path, "strategy", err.Error())
	}}
	if h.o.Again != nil {
		h.written.path = h.o.ConfigPath
	}
	if h.o.Inline {
		own.path, h.written.strategy = h.o.ConfigPath, own
	} else {
		g.Add(run.Component{Name: "strategy", Run: own.run})
	}
	g.Add(run.Component{Name: "configuration", Run: h.written.run})
}

// ready tells systemd once the program serves.
func (h *Host) ready(ctx context.Context, notify *run.Notifier) {
	if h.o.Serving != nil {
		select {
		case <-ctx.Done():
			return
		case <-h.o.Serving:
		}
	}
	if err := notify.Ready(); err != nil {
		h.o.Log.Warn("tell systemd that we are ready", "err", err)
	}
}

// renew takes in what a later probe found: resctrl may have been mounted.
func (h *Host) renew(s engine.Static) {
	if err := h.writer.reopen(); err != nil {
		h.o.Log.Error("open the cgroup filesystem again", "err", err)
	}
	h.Engine.Views().SetStatic(s)
}

// setHandoff takes in the node agent's files. A file that was refused is reported; its last good content holds.
func (h *Host) setHandoff(s handoff.Snapshot) {
	h.Engine.Views().SetHandoff(s)
	h.setProblems(s.Problems)
}

func (h *Host) setProblems(problems []handoff.Problem) {
	for _, p := range problems {
		h.Engine.Problem(p.File, "handoff", p.Reason)
	}
}

var errDisconnected = errors.New("not connected to the runtime")

func (h *Host) health() error {
	if err := h.unwritten(); err != nil {
		return fmt.Errorf("nothing is written to the kernel: %w", err)
	}
	if !h.Engine.Connected() {
		return errDisconnected
	}
	if err := h.Engine.Stuck(); err != nil || h.more.Hung == nil {
		return err
	}
	return h.more.Hung()
}

// unwritten is Unrecorded for a program that starts without its run directory, too, and for the others whether they have lost theirs.
func (h *Host) unwritten() error {
	if h.o.Usable == nil {
		return h.Barred()
	}
	return h.Unrecorded()
}

// alive is what the watchdog is told by: the engine's loops go on, and the program's own. A runtime that is away is no reason to start anew.
func (h *Host) alive() error {
	err := h.Engine.Stuck()
	if err == nil && h.more.Dead != nil {
		err = h.more.Dead()
	}
	if err != nil {
		h.Engine.Trouble("engine", "watchdog", err)
	}
	return err
}

// writeStatus keeps the status file up to date.
func (h *Host) writeStatus(ctx context.Context) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for told := ""; ; {
		s := h.Engine.Status()
		s.Start, s.Written, s.Up, s.Program, s.ProgramVersion = h.started, time.Now(), boottime.Now(), h.o.Name, h.o.Program
		s.ConfigPath, s.ConfigLoaded, s.ConfigPending = h.o.ConfigPath, h.started, h.written.waiting()
		if h.more.Agent != nil {
			s.Agent = h.more.Agent()
		}
		if h.o.Scheduling != nil {
			s.Scheduling = h.o.Scheduling()
		}
		switch err := status.Write(h.o.Config.RunDir, h.o.Writer, s); {
		case err == nil:
			told = ""
		case err.Error() != told:
			told = err.Error()
			h.o.Log.Error("write status", "err", err)
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
		case <-h.Engine.StatusChanged():
		}
	}
}

// Close gives back what New took, for who does not come to Run, which does so itself; parts that were not reached are nil.
func (h *Host) Close(ctx context.Context) error {
	var errs []error
	if h.writer != nil {
		errs = append(errs, h.writer.close(ctx))
	}
	if h.run != nil {
		errs = append(errs, h.run.ledger.Close(), h.run.release())
	}
	return errors.Join(errs...)
}
