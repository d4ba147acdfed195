// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/engine/beside"
	"github.com/koord-rt/koord-rt/engine/feed"
	"github.com/koord-rt/koord-rt/engine/host"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/kernel/reclaim"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/tc"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/koordlet/internal/agent"
	"github.com/koord-rt/koord-rt/koordlet/internal/collect"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/evict"
	"github.com/koord-rt/koord-rt/koordlet/internal/kubeletopt"
	"github.com/koord-rt/koord-rt/koordlet/internal/ownnode"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/predict"
	"github.com/koord-rt/koord-rt/koordlet/internal/publish"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/koordlet/internal/talk"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/interference"
)

// Writer is this process's name in the ledger and among the status files; Program its own.
const (
	Writer  = "koordlet"
	Program = "koordlet"
)

// Daemon is koordlet.
type Daemon struct {
	cfg     config.Koordlet
	version string
	log     *slog.Logger
	host    *host.Host
	list    *cri.Lister
	lister  *feed.Lister
	keeper  *feed.Keeper
	cluster *cluster
	pods    *pods.Keeper
	window  window.Store
	agent   *agent.Agent
	evictor *evict.Executor
	audit   *talk.Audit
	// populated reports whether a cgroup has a process; set before anything runs.
	populated func(cgroup string) (bool, error)
	// predictor is nil where prediction is off or impossible.
	predictor *predict.Predictor
	// topology is nil where it is not reported; machine belongs to its goroutine, unmade is why nothing can be told. kubelet is nil where its
	// options are not asked for.
	topology *report.TopologyWriter
	unmade   atomic.Pointer[error]
	machine  machine
	kubelet  *kubeletopt.Reader
	// rooms belongs to the loops' goroutine: who has more than its policies say.
	rooms talk.Rooms
	// tell are the reports to the cluster; metrics and strategy two of them, nil without an API server.
	tell     []run.Component
	metrics  *report.Metrics
	strategy *report.Strategy
	count    *metrics.Agent
	news     news
	started  time.Time
	// now is the time of day by which it is told whether the loops go on.
	now func() time.Time
	// herald and ownNode are nil without an API server.
	herald  *report.Herald
	ownNode *ownnode.Watch
	// pressure is nil where it is off or impossible, tickAlone says why; noPressure: the class of the best-effort pods has none to tell.
	pressure   *agent.Pressure
	tickAlone  string
	noPressure bool
	// known reads what the loops knew in an earlier life, later takes it to them where that was not possible at the start.
	// unread: it was not.
	known  func() (decide.State, bool, error)
	later  chan decide.State
	unread bool
	// ward stands between the engine and the kernel while others write; afresh asks for whole lists.
	ward   *beside.Ward
	afresh atomic.Bool
}

// New takes the lock, probes the node and connects the parts. On error everything is given back.
func New(ctx context.Context, l Loaded, version, program string, log *slog.Logger) (_ *Daemon, err error) {
	d := &Daemon{
		cfg: l.Config, version: version, log: log, started: time.Now(), now: time.Now, window: newWindow(&l.Config), later: make(chan decide.State, 1),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.abandon(context.WithoutCancel(ctx)))
		}
	}()
	if d.list, err = cri.NewLister("unix://" + d.cfg.RuntimePath()); err != nil {
		return nil, err
	}
	o := host.Options{
		Config: d.cfg.Node, Writer: Writer, Name: Program, Program: program, ConfigPath: l.Path,
		Again: l.Again, Strategy: l.Strategy, Source: l.Source, Inline: l.Inline, Edge: edge{}, List: d.list, Log: log, Usable: d.usable, ExitsUntold: true, UpdatesUntold: true,
	}
	d.besideOthers(&o)
	if d.cluster, err = newCluster(&d.cfg, version, log); err != nil {
		return nil, err
	}
	if d.pods, err = newPods(&d.cfg, d.cluster, d.alive); err != nil {
		return nil, err
	}
	if d.host, err = host.New(ctx, o); err != nil {
		return nil, err
	}
	d.cluster.cpus = func() topo.CPUSet { return d.host.Engine.Views().Load().Topology.All() }
	beneath, err := d.host.Place()
	if err != nil {
		return nil, err
	}
	d.list.Beneath(beneath)
	boot, err := root.Roots{Proc: d.cfg.Host.Proc}.BootID()
	if err != nil {
		return nil, err
	}
	if d.audit, err = talk.OpenAudit(d.cfg.RunDir, Writer, boot); err != nil {
		return nil, err
	}
	d.recall(boot)
	d.lister = &feed.Lister{Engine: d.host.Engine, Runtime: d.list}
	d.keeper = feed.New(feed.Options{
		Pace: d.cfg.Reconnect, Engine: d.host.Engine, Hello: d.hello, List: d.takeIn, Ping: d.ping,
	})
	if d.tell, err = d.reports(); err != nil {
		return nil, err
	}
	if d.predictor, err = d.newPredictor(); err != nil {
		return nil, err
	}
	topology, err := d.newTopology()
	if err != nil {
		return nil, err
	}
	d.tell = append(d.tell, topology...)
	// Last, since only its own Run gives back the files that it holds.
	if d.agent, err = d.newAgent(); err != nil {
		return nil, err
	}
	return d, nil
}

// newWindow makes the memory of the samples, which has to know how many of them there can be.
func newWindow(cfg *config.Koordlet) *window.Memory {
	return window.New(window.Options{Interval: unit.Micros(cfg.Collect.Interval.Std().Microseconds())})
}

// abandon closes what New has opened; parts that were not reached are nil.
func (d *Daemon) abandon(ctx context.Context) error {
	var errs []error
	if d.audit != nil {
		errs = append(errs, d.audit.Close())
	}
	if d.host != nil {
		errs = append(errs, d.host.Close(ctx))
	}
	if d.cluster != nil {
		d.cluster.close()
	}
	if d.list != nil {
		errs = append(errs, d.list.Close())
	}
	return errors.Join(errs...)
}

// edge marks nothing: the agent stands in nobody's way to the runtime.
type edge struct{}

// Mark implements engine.Edge.
func (edge) Mark(*node.View, plan.Plan, *workload.Container) *protocol.Applied { return nil }

// newAgent makes what ticks.
func (d *Daemon) newAgent() (_ *agent.Agent, err error) {
	v := d.host.Engine.Views().Load()
	at := d.cfg.Host
	clock := collect.BootClock()
	scanner, err := collect.New(collect.Options{
		Roots:  root.Roots{Cgroup: at.CgroupRoot, Proc: at.Proc, Sys: at.Sys, Resctrl: at.Resctrl, Dev: at.Dev},
		Cgroup: v.Kernel.Cgroup, Topology: v.Topology, Now: clock,
		Slow: int(d.cfg.Collect.SlowInterval.Std() / d.cfg.Collect.Interval.Std()),
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			scanner.Close()
		}
	}()
	kept := stateFile(filepath.Join(d.cfg.RunDir, "koordlet-state.json"))
	hands, err := d.newHands(v.Kernel.Cgroup)
	if err != nil {
		return nil, err
	}
	d.populated = hands.Populated
	if d.evictor, err = d.newEvictor(hands); err != nil {
		return nil, err
	}
	d.noPressure = noPressure(scanner.Support())
	if err := d.extend(scanner.Support); err != nil {
		return nil, err
	}
	taken := reclaim.New(root.Roots{Cgroup: at.CgroupRoot}, v.Kernel.Cgroup)
	files, err := cgroup.Open(root.Roots{Cgroup: at.CgroupRoot, Proc: at.Proc}, v.Kernel.Cgroup, cgroup.Options{})
	if err != nil {
		return nil, err
	}
	d.known = func() (decide.State, bool, error) {
		past, known, err := kept.read()
		if err != nil {
			d.log.Warn("what the loops knew before is lost", "err", err)
		}
		past.Resume(files.Read)
		return past, known, err
	}
	past, known, unread := d.known()
	d.unread = unread != nil || !known && d.host.Barred() != nil
	if d.pressure, d.tickAlone, err = d.newPressure(v.Kernel.Cgroup); err != nil {
		return nil, err
	}
	return agent.New(agent.Options{
		Interval: d.cfg.Collect.Interval.Std(), Engine: d.host.Engine, Scanner: scanner, Window: d.window,
		Pods: d.pods, Node: d.cluster.Node, KubeletCPUs: (&kubeletCPUs{path: at.KubeletCPUManagerState}).load, Strategy: d.cluster.Strategy,
		Publisher: publish.New(d.cfg.RunDir, d.cfg.StateDir, time.Now()), Now: clock, Wall: time.Now,
		Write: d.write, GiveBack: d.host.GiveBack, Tell: d.ticked,
		Kept: past, Later: d.later, Alone: d.host.Alone, Keep: d.keeps(kept.write), Evict: victims{d.evictor}, EvictFeatures: evictFeatures(&d.cfg.Evict),
		MemoryPause: unit.Micros(d.cfg.Evict.MemoryCooldown.Std().Microseconds()),
		CPUPause:    unit.Micros(d.cfg.Evict.CPUCooldown.Std().Microseconds()),
		Slow:        d.cfg.Collect.SlowInterval.Std(), Reclaim: taken.Reclaim, NoReclaim: taken.Missing,
		Parameters: agent.Parameters(files), CostLines: agent.CostLines(files), PerCPU: d.perCPU, Links: tc.Shaper{Sys: at.Sys, Proc: at.Proc}, Tune: d.cfg.Tune, Pace: paceOf(&d.cfg.Interference),
		Pressure: d.pressure, NoPressure: d.noPressure, Log: d.log,
	}), nil
}

// paceOf is the configuration's, in the loops' unit.
func paceOf(c *config.Interference) interference.Pace {
	in := func(t config.Duration) unit.Micros { return unit.Micros(t.Std().Microseconds()) }
	return interference.Pace{History: in(c.History), Trial: in(c.Trial), Calm: in(c.Calm)}
}

// newPressure makes the triggers. Without them the tick alone decides, and alone says why where that is not the configuration's wish.
func (d *Daemon) newPressure(version node.CgroupVersion) (p *agent.Pressure, alone string, err error) {
	c := &d.cfg.Pressure
	if c.Stall == 0 {
		return nil, "", nil
	}
	files, err := usage.Open(root.Roots{Cgroup: d.cfg.Host.CgroupRoot, Proc: d.cfg.Host.Proc}, version)
	if err != nil {
		return nil, "", err
	}
	const cpu = "cpu"
	file := func(cgroup string) string { return filepath.Join(d.cfg.Host.CgroupRoot, cgroup, "cpu.pressure") }
	if version == node.CgroupV1 {
		if files.PressureFile("", cpu) == "" {
			return nil, noUnified, nil
		}
		// Whether a pod is in the unified hierarchy, too, is its runtime's choice.
		file = func(cgroup string) string { return files.PressureFile(cgroup, cpu) }
	}
	p, err = agent.NewPressure(psi.Trigger{Kind: psi.Some, Stall: c.Stall.Std(), Window: c.Window.Std()}, file, func(uid string) { d.agent.Urgent(uid) })
	if err != nil {
		d.log.Warn("no pressure triggers: suppression waits for the tick", "err", err)
		return nil, "no pressure triggers: " + err.Error(), nil
	}
	return p, "", nil
}

// noPressure reports that the kernel does not tell the pressure of the best-effort class, as far as is known beforehand.
func noPressure(states []collect.State) bool {
	i := slices.IndexFunc(states, func(s collect.State) bool { return s.Collector == collect.ClassPressure })
	return i < 0 || states[i].Support != collect.StateActive
}

// Run works until ctx ends.
func (d *Daemon) Run(ctx context.Context) error {
	more := []run.Component{
		{Name: "pods", Run: d.pods.Run}, {Name: "loops", Run: d.loops}, {Name: "pulse of the loops", Run: d.watchLoops}, {Name: "evictions", Run: d.evictor.Run},
		{Name: "other writers", Run: d.ward.Run}, {Name: "audit", Run: d.keepAudit},
	}
	if d.predictor != nil {
		more = append(more, run.Component{Name: "prediction", Run: d.predictor.Run})
	}
	more = append(more, d.tell...)
	more = append(more, d.cluster.components()...)
	if d.pressure != nil {
		more = append(more, run.Component{Name: "pressure", Run: d.pressure.Run})
	}
	err := d.host.Run(ctx, d.keeper.Run, more...)
	d.cluster.close()
	return errors.Join(err, d.audit.Close(), d.list.Close())
}

// loops waits for the first list: without it nobody is known, and every CPU would seem to be the system's.
func (d *Daemon) loops(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.keeper.Synced():
	}
	return d.agent.Run(ctx)
}

// hello asks the runtime who it is.
func (d *Daemon) hello(ctx context.Context) error {
	v, err := d.list.Version(ctx)
	if err != nil {
		return fmt.Errorf("ask the runtime for its version: %w", err)
	}
	r := cri.Runtime(v.Name, v.Version)
	d.host.Engine.Views().SetRuntime(r)
	d.host.Metrics.SetBuild(d.version, v.Name, v.Version, "")
	d.news.hello(v.Name, v.Version)
	d.log.Info("connected to the runtime", "runtime", v.Name, "version", v.Version)
	return nil
}

// takeIn takes the runtime's lists in; nobody else tells the engine anything. Whole lists end the wait for what another
// writer, who has gone, knew.
func (d *Daemon) takeIn(ctx context.Context, _ bool) (missed bool, err error) {
	afresh := d.afresh.Swap(false)
	missed, err = d.lister.List(ctx, afresh)
	switch {
	case !afresh:
	case err != nil:
		d.afresh.Store(true)
	default:
		d.ward.Release()
	}
	return missed, err
}

// ping lists again. It does not follow CRI's GetContainerEvents, by which who stands still holds up the runtime (ADR 22).
func (d *Daemon) ping(ctx context.Context) error {
	_, err := d.takeIn(ctx, false)
	return err
}
