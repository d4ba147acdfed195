// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package beside_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/engine/beside"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

const (
	interval = 10 * time.Second
	dir      = "/kubepods/podu/c1"
)

// other is a program that goes first.
type other struct {
	dir, writer string
	held        *lock.Lock
	// set is by how much the time of day stood otherwise when it says something.
	set time.Duration
}

// come starts it, and goes ends it; still lets it live through another moment.
func (o *other) come(t *testing.T) {
	t.Helper()
	var err error
	o.held, err = lock.Acquire(lock.Path(o.dir, o.writer))
	must(t, err)
	o.still(t)
}

func (o *other) still(t *testing.T) {
	t.Helper()
	if o.held != nil {
		must(t, tell(o.dir, o.writer, time.Now(), time.Now()))
	}
}

func (o *other) goes(t *testing.T) {
	t.Helper()
	if o.held != nil {
		must(t, o.held.Release())
		o.held = nil
	}
}

// says records what it wants of a knob of the container.
func (o *other) says(t *testing.T, k plan.Knob, want string, via journal.Via) {
	t.Helper()
	l, err := ledger.Open(o.dir, o.writer, ledger.Options{})
	must(t, err)
	must(t, l.Append(journal.Record{
		Time: time.Now().Add(o.set), Boot: kerneltest.BootID, Target: plan.Target{Level: plan.LevelContainer, Container: "c1", Cgroup: dir, Name: "as it knows it"},
		Knob: k.String(), Want: want, Owner: "batch", Via: via,
	}))
	must(t, l.Close())
}

// rig is koordlet's ward on a fake machine. Everything happens in the time of the test's bubble, second by second.
type rig struct {
	t    *testing.T
	m    *enginetest.Machine
	nri  *other
	ward *beside.Ward
	// engine's wishes, presented in intervals, half an interval away from the looks.
	wants plan.Plan
	clock int
	told  []string
}

// newRig is a rig with koord-nri there or not. It compares times of day: a ledger's records have the machine's own clock, which knows
// nothing of the bubble's time.
func newRig(t *testing.T, there bool) *rig {
	t.Helper()
	return newRigOf(t, there, "another", nil)
}

// newRigOf is newRig in a boot whose clock is up.
func newRigOf(t *testing.T, there bool, boot string, up func() time.Duration) *rig {
	t.Helper()
	r := &rig{t: t, m: enginetest.New(t, "6.12", dir), nri: &other{dir: t.TempDir(), writer: "nri"}}
	if there {
		r.nri.come(t)
	}
	t.Cleanup(func() { r.nri.goes(t) })
	r.ward = beside.NewWard(beside.Options{
		Kernel: r.m.Writer(t, func(o *apply.Options) { o.Units = units{r} }), Watch: beside.New(r.nri.dir, "/proc", "koordlet"),
		RunDir: r.nri.dir, Interval: interval, Boot: boot, Up: up, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Lost:     func() { r.told = append(r.told, "lost") },
		Released: func() { r.told = append(r.told, "released") },
		Mended: func(results []apply.Result) {
			for i := range results {
				r.told = append(r.told, results[i].Outcome.String()+" "+results[i].Setting.Knob.String())
			}
		},
		Trouble: func(err error) { t.Error(err) },
	})
	return r
}

func set(k plan.Knob, v int64) plan.Setting {
	return plan.Setting{
		Target: plan.Target{Level: plan.LevelContainer, Container: "c1", Cgroup: dir, Pod: "u", Name: "default/web/app"},
		Knob:   k, Value: plan.Int(v), Owner: protocol.FeatureBatch, Reason: "test",
	}
}

// present is what the engine does with its plans.
func (r *rig) present(p ...plan.Setting) {
	r.t.Helper()
	for _, res := range r.ward.Apply(r.t.Context(), p, 7) {
		if res.Err != nil {
			r.t.Error(res.Err)
		}
	}
}

// pass lets time go by.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	for range int(d / time.Second) {
		time.Sleep(time.Second)
		r.nri.still(r.t)
		if r.clock++; r.clock%10 == 5 && len(r.wants) > 0 {
			r.present(r.wants...)
		}
		r.ward.Tend(r.t.Context(), time.Now())
	}
}

// stands checks a file, and what has been told since the last time.
func (r *rig) stands(what, file, want string, told ...string) {
	r.t.Helper()
	if got := r.m.Tree.Get(r.t, dir, file); got != want {
		r.t.Errorf("%s: %s is %q, want %q", what, file, got, want)
	}
	if !slices.Equal(r.told, told) {
		r.t.Errorf("%s: told %q, want %q", what, r.told, told)
	}
	r.told = nil
}

// written are our writes since the last time.
func (r *rig) written() string { return strings.Join(r.m.Tree.Log(), " ") }
