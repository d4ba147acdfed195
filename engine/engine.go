// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package engine is what every program on a node that stands in a container's way shares: the registry of pods and
// containers, the View, the decision at each moment of a container's life, direct writes and their proof, repair after
// the fact, and the deadline guard. One file per moment.
//
// Inputs are values of model/workload, made by whoever translates the runtime's messages (koord-nri, koord-runtime-proxy),
// the handoff and configuration; outputs are plans for the translator to render, direct writes through kernel/apply,
// ledger records and metrics. Decisions are policy's alone. It imports shared rooms but adapt; it knows no message of
// any runtime, runs no other program, and asks no API inside a handler.
package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/logs"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/drift"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Kernel is kernel/apply's Applier.
type Kernel interface {
	Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result
	Verify(p plan.Plan) []apply.Mismatch
	SyncUnits(ctx context.Context, p plan.Plan, gen uint64) []apply.Result
	Sources(ctx context.Context, strays []apply.Stray) []drift.Source
	Forget(targets ...plan.Target) error
	// Last is what this process has written last to a knob, from memory; false where that is not known.
	Last(id plan.ID) (plan.Value, bool)
}

// Starter is a Kernel that brings a container to its plan and proves it in one pass, as kernel/apply's Applier does. For
// one that cannot, Start applies first and verifies then.
type Starter interface {
	// Ready opens what the proof of a container's plan will read; false: its files are not there yet.
	Ready(t plan.Target, all plan.Plan) (enough bool)
	// Unready gives back what Ready has opened, where no Start has used it.
	Unready(t plan.Target)
	// Start is Apply of todo followed by Verify of all, for the container at t; release, called once, gives back what the pass holds.
	Start(ctx context.Context, t plan.Target, todo, all plan.Plan, gen uint64) (results []apply.Result, bad []apply.Mismatch, release func())
}

// Groups makes, lists and removes resctrl groups; kernel/resctrl.
type Groups interface {
	EnsureGroup(name string) (created bool, err error)
	RemoveGroup(name string) error
	Groups() ([]string, error)
	MonGroups(group string) ([]string, error)
	RemoveMon(group, mon string) error
}

// Edge says what a container's specification can carry over the way to the runtime that the program stands in.
type Edge interface {
	// Mark says what the plan changes on a container and what stood there before: the content of the annotation on it. It
	// is nil when nothing changes.
	Mark(v *node.View, pl plan.Plan, c *workload.Container) *protocol.Applied
}

// DefaultDrift is the interval of the drift check where nobody has configured another one.
const DefaultDrift = config.DefaultDriftInterval

// Options of New. All are required unless a comment says otherwise.
type Options struct {
	Config  config.Node
	Log     *slog.Logger
	Metrics *metrics.Engine
	// Edge is the way to the runtime.
	Edge    Edge
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
	// Births tells when the runtime has made a container's cgroup; nil writes nothing before a start.
	Births Births
	// Live checks values against the kernel's present state before they are promised; nil checks nothing.
	Live *Live
	// Join puts what hook servers want of a container beside our plan. Nil, for a program that asks none: what a mark says
	// to be theirs holds.
	Join func(ours, foreign plan.Plan) plan.Plan
	// ExitsUntold: the runtime does not tell of containers that end by themselves; a cgroup that is gone does.
	ExitsUntold bool
	// UpdatesUntold: nor does it tell of updates; once the kernel holds other values, its record does (List).
	UpdatesUntold bool
	// UpdatesAwaited: who has asked for an update hears of its end behind Updated.
	UpdatesAwaited bool
	// Beside reports whether another program on this node writes what the specification cannot carry before the first
	// instruction; nil for none.
	Beside func() bool
	// Leave tells the other writers of the run directory that this one is about to end. others reports that one of them
	// lives on; else left is what all of them have written. Nil for a program that is alone.
	Leave func() (others bool, left *Past)
	// Quiet is called each time when all that events have left for later is done; may be nil. Later jobs wait for it, replies do not.
	Quiet func()
	// OnFormula is told when the runtime's weight formula turns out to be another than assumed; may be nil.
	OnFormula func(unit.WeightFormula)
	// Now defaults to time.Now.
	Now func() time.Time
	// Drift is the interval of the drift check, default Config's, which cannot be as short as tests want it; Workers bounds
	// concurrent repairs, default 4.
	Drift   time.Duration
	Workers int
}

// Engine keeps the guarantees of the containers that it is told of. Its methods may be called from any goroutine.
type Engine struct {
	o         Options
	log       *slog.Logger
	m         *metrics.Engine
	views     *Views
	reg       *registry
	limiter   *logs.Limiter
	deadline  atomic.Int64 // nanoseconds
	jobs      *jobs
	crew      crew
	watch     watch
	moves     *moves
	repairs   chan struct{}
	whole     atomic.Bool // the next repair pass is over everything
	repaired  atomic.Uint64
	above     ancestors
	groups    groups
	mons      mons
	units     *unitQueue
	drifted   drifted
	unsettled unsettled
	writers   writers
	takingIn  sync.Mutex  // while a pod that is not known yet is put into the registry; nothing but memory
	claiming  sync.Mutex  // from the sum of all claims to the View; nothing but memory
	learned   atomic.Bool // the weight formula is known
	past      atomic.Pointer[Past]
	stats     stats
	pulses    pulses
	born      time.Time
	// life ends when Run does; work that outlives its handler is bound to it.
	life atomic.Pointer[context.Context]
}

// New makes an engine. Nothing runs before Run.
func New(o Options) *Engine {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Drift <= 0 {
		o.Drift = o.Config.DriftInterval.Std()
	}
	if o.Workers <= 0 {
		o.Workers = 4
	}
	if o.Join == nil {
		o.Join = foreignHolds
	}
	g := &Engine{
		o: o, log: o.Log, m: o.Metrics, views: o.Views, reg: newRegistry(),
		limiter: logs.NewLimiter(logs.LimiterOptions{Now: o.Now}),
		jobs:    newJobs(),
		units:   newUnitQueue(),
		moves:   newMoves(),
		repairs: make(chan struct{}, 1),
		above:   ancestors{dirs: o.Past.ancestors()},
		groups:  groups{ours: o.Past.ownGroups()},
	}
	g.born = o.Now()
	g.deadline.Store(int64(o.Config.Deadline.Std()))
	g.stats.changed = make(chan struct{}, 1)
	g.past.Store(o.Past)
	background := context.Background()
	g.life.Store(&background)
	g.views.OnChange(g.viewChanged)
	g.viewChanged(true)
	return g
}

// viewChanged follows a new strategy, dynamic state, runtime or probe: what it changes is written by the repair loop.
// What changed is told: the present View may have followed one that changed more.
func (g *Engine) viewChanged(everybody bool) {
	g.m.SetFeatures(g.featureList())
	g.m.SetGeneration(g.views.Load().Generation)
	if everybody {
		g.whole.Store(true)
	}
	g.repairNews()
}

// Problem reports what went wrong outside of the engine's own work, a file that was refused, by metric, log, status and ledger. what is a
// key of the problem metric. Each reason is told by itself: who edits a file twice in a minute wants to hear of the second mistake.
func (g *Engine) Problem(where, what, reason string) {
	g.m.Problem(what)
	if ok, held := g.limiter.Allow(where, what+": "+reason); ok {
		g.log.Warn("problem", "where", where, "what", what, "reason", reason, "suppressed", held)
		g.stats.keepProblem(g.o.Now(), where, what, reason)
		g.recordProblem(where, what, reason)
	}
}

// Run works until ctx ends: background jobs, repair, and beside, which keeps the connection to the runtime.
func (g *Engine) Run(ctx context.Context, beside func(context.Context)) error {
	g.life.Store(&ctx)
	var wg sync.WaitGroup
	for _, f := range []func(context.Context){g.jobsLoop, g.unitsLoop, g.repairLoop, beside} {
		wg.Go(func() { f(ctx) })
	}
	wg.Wait()
	g.crew.rested()
	g.drain()
	g.crew.dismiss()
	g.watch.end()
	last := context.WithoutCancel(ctx)
	g.leave(last)
	last, cancel := context.WithTimeout(last, unitsAtEnd)
	defer cancel()
	g.Attribute(last, g.drifted.take())
	g.hear(last, true)
	g.syncUnits(last)
	return nil
}

// ctx is the context of work that must not die with its request.
func (g *Engine) ctx() context.Context { return *g.life.Load() }
