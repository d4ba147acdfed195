// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package agent is koordlet's tick: measure, decide, publish, once an interval and whenever the kernel tells of pressure.
//
// Inputs are the parts that know something (engine, pods, node, scanner, window); outputs are what was published, who is to
// be evicted, and a Look for people. One goroutine runs it. It imports the agent's own rooms, api, engine, model, policy, and
// of kernel apply, cgroup, psi and root; the parts are made elsewhere (setup).
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/koordlet/internal/collect"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/publish"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/evict"
	"github.com/koord-rt/koord-rt/policy/interference"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// forgetEvery is how often the window forgets who has gone.
const forgetEvery = unit.Minute

// Options of New. All are required unless a comment says otherwise.
type Options struct {
	Interval time.Duration
	Engine   *engine.Engine
	Scanner  *collect.Scanner
	Window   window.Store
	Pods     *pods.Keeper
	// KubeletCPUs are decide.Facts', with why they may be old.
	KubeletCPUs func() (map[string]topo.CPUSet, error)
	// Node is the Node object, nil while it is not known.
	Node func() *kube.Node
	// Strategy is the NodeSLO's, nil while there is none.
	Strategy  func() *strategy.Spec
	Publisher *publish.Publisher
	// Now is the loops' clock, Wall the time of day.
	Now  func() unit.Micros
	Wall func() time.Time
	// Write brings the kernel to a plan.
	Write func(ctx context.Context, p plan.Plan) []apply.Result
	// GiveBack returns what Write has written to what stood there before; rest is what is to be written instead, because nobody knows.
	GiveBack func(ctx context.Context, p plan.Plan) (done []apply.Result, rest plan.Plan, err error)
	// Kept is the state of an earlier life; Keep stores it for the next one.
	Kept decide.State
	Keep func(decide.State) error
	// Later is Kept where it cannot be read at the start. It comes before anything can be written to the kernel.
	Later <-chan decide.State
	// Alone is why another agent may be here, nil when none is: until then nothing is evicted, reclaimed or handed on. Nil: none is.
	Alone func() error
	// Evict carries evictions out, or records them only.
	Evict Evictor
	// EvictFeatures may evict; the pauses follow a round.
	EvictFeatures         evict.Features
	MemoryPause, CPUPause unit.Micros
	// Pressure calls Urgent between the ticks; nil where it is off.
	Pressure *Pressure
	// NoPressure: cgroups tell no pressure here.
	NoPressure bool
	// Reclaim takes memory back from a cgroup and tells how much it got; NoReclaim says why it cannot, empty when it can.
	// Both nil: it cannot.
	Reclaim   func(ctx context.Context, cgroup string, amount unit.Bytes) (unit.Bytes, error)
	NoReclaim func() string
	// Parameters reads the node's kernel parameters; those that this kernel lacks are missing.
	Parameters func() map[plan.Knob]int64
	// CostLines reads the lines of the disks' cost control, by knob and disk; a file that this kernel lacks is missing.
	CostLines func() map[plan.Knob]map[string]string
	// PerCPU is free memory on lists of the CPUs, which the kernel does not count as free.
	PerCPU func() (unit.Bytes, error)
	// Links may be nil: then nobody looks at the uplink.
	Links Links
	// Slow is the interval of slow readings; 0 means decide.DefaultSlow. Tune and Pace are decide.Facts'.
	Slow time.Duration
	Tune bool
	Pace interference.Pace
	// Tell hears of every step.
	Tell func(*Look)
	Log  *slog.Logger
}

// Evictor carries evictions out in its own time.
type Evictor interface {
	// Evict takes what a whole step decided, also that nobody is to go any more.
	Evict(o *evict.Output)
	// Leaving are the UIDs of pods that were evicted or deleted and are still there, since when that is known; held those
	// that are not to be asked for now.
	Leaving() (leaving map[string]unit.Micros, held map[string]evict.Held)
}

// Look is what the last tick saw and decided. It is never written again.
type Look struct {
	Wall    time.Time
	Facts   decide.Facts
	Outcome decide.Outcome
	Scan    collect.Report
	// Published is what has been handed on; Unpublished is why the newest strategy could not be, or not again where its file has vanished, Withheld
	// why what the loops decided could not.
	Published             publish.Generations
	Unpublished, Withheld error
	// Unkept is why the next boot would not know the strategy that was published.
	Unkept error
	// Stale is why Facts.KubeletCPUs are what could be read last.
	Stale error
	// Owed are values of ours that nobody wants and that could not be given back so far.
	Owed []decide.Owed
	// Took is the time of the whole tick, Reaction that from the first call that an urgent one answers to the end of its writes.
	Took, Reaction time.Duration
	// Failed: something could not be measured, written, handed on or kept.
	Failed bool
}

// Agent runs the loops.
type Agent struct {
	o        Options
	state    decide.State
	urgent   *urgency
	look     atomic.Pointer[Look]
	pulse    pulse
	forgetAt unit.Micros
	// podsGen and strategy are what was published last.
	podsGen  uint64
	strategy *strategy.Spec
	reclaim  *reclaimer
	// noReclaim is looked up every forgetEvery.
	noReclaim string
	keptAt    unit.Micros
	// unkept: a decision has moved since keptAt.
	unkept bool
	// doubt is for how many ticks yet the pods' pressure is read in each, because a trigger was dismissed.
	doubt int
	// here are the pods that are followed, by UID, and followed is what that was made of.
	here     []string
	followed followed
	uplink   uplink
	// told is the last trouble of each kind, so that each is logged once.
	told map[string]string
	// failed is the Look's that is being made.
	failed bool
}

// New makes an agent. Nothing runs before Run.
func New(o Options) *Agent {
	if o.Reclaim == nil || o.NoReclaim == nil {
		o.NoReclaim = func() string { return "memory.reclaim is not connected" }
	}
	return &Agent{o: o, state: o.Kept, urgent: newUrgency(), reclaim: &reclaimer{do: o.Reclaim}, uplink: uplink{do: o.Links}, told: map[string]string{}}
}

// Urgent asks for a step now: a pod (by UID) waits for CPUs. Those who ask before it is taken share one.
func (a *Agent) Urgent(uid string) { a.urgent.ask(uid, a.o.Now()) }

// Look is what the last tick saw, nil before the first.
func (a *Agent) Look() *Look { return a.look.Load() }

// Run works until ctx ends. What was decided stays in force for publish.TTL, which an upgrade of the agent is shorter than.
func (a *Agent) Run(ctx context.Context) error {
	defer a.o.Scanner.Close()
	defer a.reclaim.wait()
	tick := time.NewTicker(a.o.Interval)
	defer tick.Stop()
	var later <-chan time.Time // the next urgent step, while it has to wait
	for {
		a.pulse.rest()
		select {
		case <-ctx.Done():
			a.resume()
			a.keep(a.o.Now())
			if a.alone() == nil { // else the copy for the next boot is another's
				a.o.Publisher.Close(a.o.Wall())
			}
			return nil
		case <-tick.C:
			a.pulse.beat(a.o.Wall())
			a.tick(ctx, nil, 0)
		case <-later:
			later = nil
			a.pulse.beat(a.o.Wall())
			a.answer(ctx)
		case <-a.urgent.call:
			a.pulse.beat(a.o.Wall())
			switch wait := a.urgent.wait(a.o.Now()); {
			case later != nil: // it will be answered with those who wait already
			case wait > 0:
				later = time.After(time.Duration(wait) * time.Microsecond)
			default:
				a.answer(ctx)
			}
		}
	}
}

// tick measures, unless it is urgent for somebody who is waiting since then, decides and publishes.
func (a *Agent) tick(ctx context.Context, waiting []string, since unit.Micros) {
	urgent := len(waiting) > 0
	a.failed = false
	a.resume()
	start := a.o.Wall()
	l := &Look{Wall: start}
	members, roster := a.o.Engine.Roster()
	snapshot := a.o.Pods.Snapshot()
	view := a.o.Engine.Views().Load()
	if !urgent {
		if a.followed.news(followed{roster: roster, pods: snapshot.Generation, spec: view.Strategy}) {
			a.follow(view, members, snapshot)
		}
		a.o.Scanner.Watch(decide.Watch(&a.state) || a.doubt > 0)
		a.doubt = max(a.doubt-1, 0)
		l.Scan = a.o.Scanner.Scan(a.o.Window.Append)
		a.trouble("measure", l.Scan.Err)
	}
	now := a.o.Now()
	if now >= a.forgetAt {
		a.forget(now)
	}
	leaving, held := a.o.Evict.Leaving()
	l.Facts = decide.Facts{
		Now: now, Urgent: urgent, Waiting: waiting, Interval: unit.Micros(a.o.Interval.Microseconds()), Window: a.o.Window, View: view,
		Members: members, Pods: snapshot, Node: a.o.Node(), NoPressure: a.o.NoPressure, EvictFeatures: a.mayEvict(),
		MemoryPause: a.o.MemoryPause, CPUPause: a.o.CPUPause, Leaving: leaving, Held: held,
		Slow: unit.Micros(a.o.Slow.Microseconds()), Tune: a.o.Tune, Pace: a.o.Pace, NoReclaim: a.noReclaim,
	}
	l.Facts.KubeletCPUs, l.Stale = a.o.KubeletCPUs()
	a.trouble("CPUs of the kubelet", l.Stale)
	if !urgent {
		a.reclaimed(&l.Facts)
		if decide.Parameters(&a.state, view) {
			l.Facts.Parameters = a.o.Parameters()
		}
		if decide.IOCost(&a.state, view) {
			l.Facts.CostLines = a.o.CostLines()
		}
		if decide.Network(&a.state, view) {
			l.Facts.Link = a.uplink.look(now, l.Facts.Slow, a.followed, a.state.Network.Held)
		}
	}
	if decide.MemoryOver(&l.Facts) {
		var err error
		l.Facts.PerCPU, err = a.o.PerCPU()
		a.trouble("free lists of CPUs", err)
	}
	before := a.state.Evict
	a.state, l.Outcome = decide.Step(a.state, &l.Facts)
	a.o.Window.Append(l.Outcome.Samples)
	s := &l.Outcome.Suppress
	a.moved(&before, &l.Outcome)
	rest := a.giveBack(ctx, l.Outcome.Back) // before the state forgets that it was ours
	if l.Outcome.Owns || s.Changed && s.Mode == suppress.CPUSet {
		a.keep(now)
	}
	a.write(ctx, slices.Concat(l.Outcome.Tier, l.Outcome.Apps, l.Outcome.Node, rest))
	if l.Facts.Link != nil {
		a.trouble("network QoS", a.uplink.settle(&l.Outcome.Network))
	}
	a.publish(l, snapshot)
	if urgent {
		l.Reaction = time.Duration(a.o.Now()-since) * time.Microsecond
	}
	l.Published, l.Owed = a.o.Publisher.Generations(), a.state.Refused()
	if a.alone() == nil {
		a.reclaim.start(ctx, tasks(l.Outcome.Reclaims, members))
	}
	a.evict(&l.Outcome, urgent)
	a.tell(&l.Outcome, urgent)
	a.keepNowAndThen(now)
	l.Took, l.Failed = a.o.Wall().Sub(start), a.failed
	a.look.Store(l)
	a.o.Tell(l)
}

// forget is done now and then: who has gone is forgotten, and what the kernel can is looked at again.
func (a *Agent) forget(now unit.Micros) {
	a.o.Window.Collect(now)
	a.note("window of samples", a.o.Window.Full(now))
	a.forgetAt = now + forgetEvery
	if why := a.o.NoReclaim(); why != a.noReclaim {
		a.noReclaim = why
		a.o.Log.Info("proactive reclaim", "supported", why == "", "reason", why)
	}
}

// tell logs what has changed.
func (a *Agent) tell(o *decide.Outcome, urgent bool) {
	if s := &o.Suppress; s.Changed {
		a.o.Log.Info("CPU of the best-effort tier", "mode", s.Mode.String(), "cpus", s.CPUs.String(), "quota", int64(s.Quota), "urgent", urgent,
			"reason", s.Reason)
	}
	if !urgent && len(o.Sysctl.Problems)+len(o.IOCost.Problems)+len(o.AppProblems)+len(a.told["strategy"]) > 0 {
		var errs []error
		for _, p := range slices.Concat(o.Sysctl.Problems, o.IOCost.Problems, o.AppProblems) {
			errs = append(errs, errors.New(p))
		}
		a.note("strategy", errors.Join(errs...)) // not the loop's failure
	}
	for i := range o.Events {
		a.o.Log.Info("interference", "pod", o.Events[i].Name, "uid", o.Events[i].Pod, "what", o.Events[i].Text)
	}
}

// giveBack returns what was ours to what stood there before; rest is what nobody knows that of.
func (a *Agent) giveBack(ctx context.Context, p plan.Plan) (rest plan.Plan) {
	if len(p) == 0 {
		return nil
	}
	done, rest, err := a.o.GiveBack(ctx, p)
	errs := []error{err}
	for i := range done {
		a.returned(&done[i])
		if done[i].Outcome == apply.Failed {
			errs = append(errs, done[i].Err)
		}
	}
	a.trouble("give back", errors.Join(errs...))
	return rest
}

// returned notes what became of what was to be given back.
func (a *Agent) returned(r *apply.Result) {
	switch r.Outcome {
	case apply.Observed, apply.Skipped:
		return // it is not this that gives it back
	case apply.Written, apply.Unchanged, apply.Pending, apply.Gone:
		a.unkept = a.state.Returned(&r.Setting, nil) || a.unkept
	case apply.Failed:
		a.unkept = a.state.Returned(&r.Setting, r.Err) || a.unkept
	}
}

// write brings the kernel to what was decided for it. Apply reads before it writes: a plan that is in force costs a read. A
// host application that does not run has no cgroup, and the class of the best-effort pods none without a pod.
func (a *Agent) write(ctx context.Context, p plan.Plan) {
	var errs []error
	for _, r := range a.o.Write(ctx, p) {
		a.uplink.wrote(&r, a.o.Now())
		a.returned(&r)
		if r.Err != nil && r.Outcome != apply.Gone {
			errs = append(errs, fmt.Errorf("%s: %w", &r.Setting, r.Err))
		}
	}
	a.trouble("write", errors.Join(errs...))
}

// trouble is what this round failed in.
func (a *Agent) trouble(what string, err error) {
	a.failed = a.failed || err != nil
	a.note(what, err)
}

// note logs an error once, and its end.
func (a *Agent) note(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if a.told[what] == text {
		return
	}
	a.told[what] = text
	if err != nil {
		a.o.Log.Warn(what, "err", err)
		return
	}
	a.o.Log.Info(what + " works again")
}
