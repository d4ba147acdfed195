// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package plugin is koord-nri's inside: one file per NRI event, and what they share — the registry of pods and
// containers, the View, the deadline guard, repair after the fact, and the connection.
//
// Inputs are NRI events, the handoff and configuration; outputs are replies to the runtime, direct writes through
// kernel/apply, ledger records and metrics. Decisions are policy's alone. It may import every shared room; it never
// imports client-go or apimachinery, runs no other program, and asks no API inside a handler.
package plugin

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/logs"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Kernel is kernel/apply's Applier.
type Kernel interface {
	Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result
	Verify(p plan.Plan) []apply.Mismatch
	SyncUnits(ctx context.Context, p plan.Plan, gen uint64) []apply.Result
	Forget(targets ...plan.Target) error
}

// Groups makes and removes resctrl groups; kernel/resctrl.
type Groups interface {
	EnsureGroup(name string) (created bool, err error)
	RemoveGroup(name string) error
	RemoveMon(group, mon string) error
}

// Options of New. All are required unless a comment says otherwise.
type Options struct {
	Config  config.NRI
	Version string
	Log     *slog.Logger
	Metrics *metrics.NRI
	Journal journal.Journal
	Kernel  Kernel
	Views   *Views
	// Boot is the kernel's boot id; it stands in every record.
	Boot string
	// Groups is nil where resctrl is not mounted.
	Groups Groups
	// Past is what an earlier life of the plugin has written, read from the ledger; may be nil.
	Past *Past
	// List fetches what NRI did not tell; nil without a CRI endpoint.
	List Lister
	// CgroupRoot is a hierarchy to search for containers that the runtime did not tell (on v1 one controller's); empty
	// searches none.
	CgroupRoot string
	// Live checks values against the kernel's present state before they are promised; nil checks nothing.
	Live *Live
	// OnFormula is told when the runtime's weight formula turns out to be another than assumed; may be nil.
	OnFormula func(unit.WeightFormula)
	// Now defaults to time.Now.
	Now func() time.Time
	// Drift is the interval of the drift check, default 10 s; Workers bounds concurrent repairs, default 4.
	Drift   time.Duration
	Workers int
}

// Plugin handles NRI events. Its methods are called by the stub, from any goroutine.
type Plugin struct {
	o         Options
	log       *slog.Logger
	m         *metrics.NRI
	views     *Views
	reg       *registry
	limiter   *logs.Limiter
	deadline  atomic.Int64 // nanoseconds
	session   atomic.Pointer[session]
	jobs      *jobs
	crew      *crew
	moves     *moves
	repairs   chan struct{}
	above     ancestors
	groups    groups
	units     *unitQueue
	unsettled unsettled
	learned   atomic.Bool // the weight formula is known
	stats     stats
	// life ends when Run does; work that outlives its handler is bound to it.
	life atomic.Pointer[context.Context]
}

// New makes a plugin. Nothing runs before Run.
func New(o Options) *Plugin {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Drift <= 0 {
		o.Drift = 10 * time.Second
	}
	if o.Workers <= 0 {
		o.Workers = 4
	}
	p := &Plugin{
		o: o, log: o.Log, m: o.Metrics, views: o.Views, reg: newRegistry(),
		limiter: logs.NewLimiter(logs.LimiterOptions{Now: o.Now}),
		jobs:    newJobs(),
		units:   newUnitQueue(),
		crew:    newCrew(),
		moves:   newMoves(),
		repairs: make(chan struct{}, 1),
		above:   ancestors{dirs: o.Past.ancestors()},
		groups:  groups{ours: o.Past.ownGroups()},
	}
	p.deadline.Store(int64(o.Config.Deadline.Std()))
	p.stats.changed = make(chan struct{}, 1)
	background := context.Background()
	p.life.Store(&background)
	p.views.OnChange(p.viewChanged)
	p.viewChanged()
	return p
}

// viewChanged follows a new strategy, dynamic state, runtime or probe: what it changes is written by the repair loop.
func (p *Plugin) viewChanged() {
	p.m.SetFeatures(p.featureList())
	p.m.SetGeneration(p.views.Load().Generation)
	p.repairSoon()
}

// Problem reports what went wrong outside of the plugin's own work: a file that was refused. what is a key of the
// problem metric. Each reason is told by itself: who edits a file twice in a minute wants to hear of the second mistake.
func (p *Plugin) Problem(where, what, reason string) {
	p.m.Problem(what)
	if ok, held := p.limiter.Allow(where, what+": "+reason); ok {
		p.log.Warn("problem", "where", where, "what", what, "reason", reason, "suppressed", held)
		p.stats.keepProblem(p.o.Now(), where, what, reason)
	}
}

// Run works until ctx ends: background jobs, repair, and the connection to the runtime.
func (p *Plugin) Run(ctx context.Context) error {
	p.life.Store(&ctx)
	var wg sync.WaitGroup
	for _, f := range []func(context.Context){p.jobs.run, p.unitsLoop, p.repairLoop, p.connectLoop} {
		wg.Go(func() { f(ctx) })
	}
	wg.Wait()
	p.jobs.drain()
	p.crew.dismiss()
	last := context.WithoutCancel(ctx)
	p.leave(last)
	last, cancel := context.WithTimeout(last, unitsAtEnd)
	defer cancel()
	p.syncUnits(last)
	return nil
}

// ctx is the context of work that must not die with its request.
func (p *Plugin) ctx() context.Context { return *p.life.Load() }
