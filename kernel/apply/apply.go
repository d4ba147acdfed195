// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package apply is the one writer of kernel state: plan → difference → ledger → ordered writes.
//
// Input is a plan, output one Result per setting; every value is in the journal, with what stood there before, before it
// is in the kernel (D7). Verify reads a plan back (D9), Restore undoes what a ledger lists. All other kernel packages are
// reached through the interfaces in Options. It imports model/*, kernel/root, kernel/cgroup with its format, the standard library
// and golang.org/x/sys.
package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Tasks sets what belongs to processes and not to cgroups.
type Tasks interface {
	// SchedPolicy is the SCHED_* number of the process's main thread.
	SchedPolicy(pid int) (int, error)
	// SetSchedPolicy sets every thread of the process.
	SetSchedPolicy(pid, policy int) error
	OOMScoreAdj(pid int) (int, error)
	SetOOMScoreAdj(pid, score int) error
}

// Cookies are core scheduling groups.
type Cookies interface {
	Assign(group string, pid int) error
	InGroup(group string, pid int) (bool, error)
	Clear(pid int) error
}

// Groups are resctrl's control and monitoring groups; "" is the root group. It takes processes and moves all of their
// threads.
type Groups interface {
	MoveTasks(group string, pids []int) error
	InGroup(group string, pid int) (bool, error)
	InMon(group, mon string, pid int) (bool, error)
	// AddMon makes the monitoring group when it is missing and moves the processes into it.
	AddMon(group, mon string, pids []int) error
	// Schemata is the content of the group's schemata file; SetSchemata writes one line "L3:0=ff;1=ff".
	Schemata(group string) (string, error)
	SetSchemata(group, line string) error
}

// Units sets properties of systemd units, so that a daemon-reload does not undo a value.
type Units interface {
	// Has reports whether the cgroup is a unit that has a property for the knob.
	Has(cgroup string, k plan.Knob) bool
	// Set makes the settings of one cgroup properties of its unit, and returns when systemd has written them. It is not called for
	// knobs without a property.
	Set(ctx context.Context, cgroup string, settings []plan.Setting) error
	// Held is what systemd would write to the files of a cgroup's unit, by its properties as they are now.
	Held(ctx context.Context, cgroup string) (map[plan.Knob]string, error)
}

// Writer writes one value to one kernel file; nonblock asks for O_NONBLOCK.
type Writer interface {
	Write(path, value string, nonblock bool) error
}

// Options of New. FS, Roots and Journal are required.
type Options struct {
	FS      cgroup.FS
	Roots   root.Roots
	Journal journal.Journal
	// Now defaults to time.Now.
	Now func() time.Time
	// Nil hooks: their knobs fail with ErrUnsupported.
	Tasks   Tasks
	Cookies Cookies
	Groups  Groups
	Links   Links
	Units   Units
	// Writer defaults to the kernel.
	Writer Writer
	// KeepBursts has files of bursts stay open: somebody waits while they are lowered.
	KeepBursts bool
}

// Errors of Result.
var (
	// ErrUnsupported: this kernel, or this process, cannot set the knob.
	ErrUnsupported = errors.New("not supported here")
	// ErrGone: the target's cgroup or process does not exist (any more).
	ErrGone = errors.New("target is gone")
	// ErrUnplaced: the cgroup of the pod or container is not known. An empty path would be the root's, with every process
	// of the machine.
	ErrUnplaced = errors.New("its cgroup is not known")
	// ErrLedger: the value could not be recorded and therefore was not written.
	ErrLedger = errors.New("not recorded, therefore not written")
)

// Outcome of one setting.
type Outcome uint8

// Outcomes.
const (
	// Unchanged: the kernel already had the value.
	Unchanged Outcome = iota
	Written
	// Observed: recorded only (D14).
	Observed
	// Pending: the write still runs, because memory has to be reclaimed; its error goes to the journal.
	Pending
	// Skipped: nothing of the kernel's: stands in the container's specification only.
	Skipped
	// Gone: the target does not exist.
	Gone
	Failed
)

var outcomeNames = [...]string{"unchanged", "written", "observed", "pending", "skipped", "gone", "failed"}

// String names the outcome, as metrics carry it.
func (o Outcome) String() string { return outcomeNames[min(int(o), len(outcomeNames)-1)] }

// Result says what became of one setting.
type Result struct {
	Setting plan.Setting
	Outcome Outcome
	// Before is the value that was read; Known is false when it could not be.
	Before plan.Value
	Known  bool
	// Strayed: the setting stood as it was wanted before, and Before is another value: somebody else has written over it.
	Strayed bool
	// Note says how the kernel's limits changed the value: "cut from 4-7 to 4-5: …".
	Note string
	// Took is the time in the kernel of the last write that was tried and has ended; 0 where none was.
	Took time.Duration
	Err  error
}

// Applier writes plans. It is safe for concurrent use; plans with a common target wait for each other.
type Applier struct {
	o       Options
	boot    string
	mu      sync.Mutex // guards what follows; never held during IO
	targets map[string]*target
	slow    int           // writes that are reclaiming memory
	quiet   chan struct{} // closed when slow is 0 again

	// idle are sessions to be used again.
	idle []*session

	// direct: values are written through the descriptors that their originals were read from.
	direct bool
	// keptNow counts the files that targets keep open, keptMost is how many they may.
	keptNow, keptMost atomic.Int64
	// readyNow counts the sessions that are ready for a start, readyMost is how many may be.
	readyNow, readyMost atomic.Int64
}

// New reads the boot id; without one no record could be matched after a reboot, so its absence is an error.
func New(o Options) (*Applier, error) {
	boot, err := o.Roots.BootID()
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Applier{boot: boot, targets: map[string]*target{}}
	if o.Writer == nil {
		o.Writer, a.direct = kernelWriter{}, onKernel(o.FS)
	}
	if a.direct {
		a.readyMost.Store(readyLimit)
	}
	if a.direct && o.KeepBursts {
		a.keptMost.Store(keptLimit())
	}
	a.o = o
	return a, nil
}

type kernelWriter struct{}

// Write implements Writer.
func (kernelWriter) Write(path, value string, nonblock bool) error {
	if nonblock {
		return root.WriteNonblock(path, value)
	}
	return root.Write(path, value)
}

// Apply brings the kernel to the plan. Results stand in the plan's order. A setting that fails does not stop the others.
// Writes are ordered over the whole plan: bursts are lowered first, growing values go from the outermost level inwards,
// shrinking ones outwards, bursts are raised last. Writes that do not bear on each other are recorded together, with one
// append. ctx bounds retries and the wait for reclaim, not single writes.
func (a *Applier) Apply(ctx context.Context, p plan.Plan, gen uint64) []Result {
	if results, ok := a.lower(ctx, p, gen); ok {
		return results
	}
	s := a.open()
	defer s.close()
	return s.apply(ctx, p, gen)
}

func (a *session) apply(ctx context.Context, p plan.Plan, gen uint64) []Result {
	if len(p) == 0 {
		return nil
	}
	b := &a.batch
	b.session, b.p, b.gen, b.results = a, p, gen, make([]Result, len(p))
	b.changes = slices.Grow(b.changes, len(p))[:len(p)]
	b.lock(p)
	defer b.unlock()
	b.lend()
	for i := range p {
		b.results[i] = Result{Setting: p[i]}
		b.prepare(i)
	}
	b.steps = pruneUnions(b.steps, p)
	a.placePeriods(b.steps, p)
	slices.SortStableFunc(b.steps, byOrder)
	for _, st := range b.steps {
		b.run(ctx, st)
	}
	b.flush(ctx)
	b.opened()
	return b.results
}

// prepare compares one setting with the kernel and adds what must be done, or finishes its result.
func (b *batch) prepare(i int) {
	a, s, r := b.session, b.p[i], &b.results[i]
	t := b.find(s.Target)
	switch {
	case unplaced(s.Target):
		r.fail(fmt.Errorf("%s of %s: %w", s.Knob, s.Target, ErrUnplaced))
		return
	case s.Observe:
		r.Outcome = Observed
		b.note(i, t, s, journal.ViaObserve)
		return
	case isSpecOnly(s.Knob):
		r.Outcome = Skipped
		return
	case !a.fs.IsFile(s.Knob) && isCgroupKnob(s.Knob):
		r.fail(fmt.Errorf("%s of %s: %w: %w", s.Knob, s.Target, ErrUnsupported, cgroup.ErrNoFile))
		a.failed(t, r, b.gen)
		return
	}
	t.want(s, b.gen)
	c, err := a.change(b.p, s)
	if err != nil && b.unlend(t, s.Knob) {
		c, err = a.change(b.p, s)
	}
	if err != nil {
		r.fail(a.explain(s, err))
		a.failed(t, r, b.gen)
		return
	}
	b.changes[i] = c
	r.Before, r.Known = c.Current, true
	if c.Same && !a.wakes(b.p, &s) || a.idles(b.p, &s) {
		r.Outcome = Unchanged
		b.note(i, t, s, journal.ViaDirect)
		return
	}
	r.Strayed = a.strayed(t, s, c.Current)
	b.steps = a.appendSteps(b.steps, i, s, c.Direction)
}

// unplaced reports a target that names the root cgroup, which is never a pod's or a container's.
func unplaced(t plan.Target) bool {
	return t.Level >= plan.LevelQoS && strings.Trim(t.Cgroup, "/") == ""
}

// idles reports that a weight has no meaning now: the plan wants cpu.idle for the same cgroup and the kernel has it. Its
// weight then reads 0 (v2; since Linux 6.12 1) or 3 (v1), and writing it is EINVAL.
func (a *session) idles(p plan.Plan, s *plan.Setting) bool {
	return a.isIdle(p, s, plan.Int(1))
}

// wakes reports that a weight is about to be lost: the plan clears cpu.idle, and the kernel puts its default in the weight's place then.
// What it shows until then may be the weight that is wanted.
func (a *session) wakes(p plan.Plan, s *plan.Setting) bool {
	return a.isIdle(p, s, plan.Int(0))
}

// isIdle reports that s is the weight of a cgroup that is idle now, and for which the plan wants this of cpu.idle.
func (a *session) isIdle(p plan.Plan, s *plan.Setting, want plan.Value) bool {
	if s.Knob != plan.CPUShares {
		return false
	}
	idle := p.Find(s.Target, plan.CPUIdle, "")
	if idle == nil || idle.Observe || idle.Value != want {
		return false
	}
	have, err := a.fs.Read(idle.ID())
	return err == nil && have == plan.Int(1)
}

// fail sets the outcome that the error means.
func (r *Result) fail(err error) {
	r.Err = err
	if r.Outcome = Failed; errors.Is(err, ErrGone) {
		r.Outcome = Gone
	}
}

// Wait returns when no write is pending any more, or with ctx's error.
func (a *Applier) Wait(ctx context.Context) error {
	a.mu.Lock()
	slow, quiet := a.slow, a.quiet
	a.mu.Unlock()
	if slow == 0 {
		return nil
	}
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// background runs a write that may take long.
func (a *Applier) background(write func()) {
	a.mu.Lock()
	if a.slow == 0 {
		a.quiet = make(chan struct{})
	}
	a.slow++
	a.mu.Unlock()
	go func() {
		write()
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.slow--; a.slow == 0 {
			close(a.quiet)
		}
	}()
}
