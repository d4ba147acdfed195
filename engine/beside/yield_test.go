// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package beside_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/beside"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

const podDir = "/kubepods/podu"

// twins are koord-nri and the proxy on one machine, the proxy as koord-runtime-proxy sets it up.
type twins struct {
	t            *testing.T
	m            *enginetest.Machine
	nri          *other
	first, proxy *program
	watch        *beside.Watch
	yields       *beside.Yield
}

func newTwins(t *testing.T) *twins {
	t.Helper()
	w := &twins{t: t, m: enginetest.New(t, "6.12", dir), nri: &other{dir: t.TempDir(), writer: "nri"}}
	for _, d := range []string{dir, podDir} {
		w.m.Tree.Set(t, d, "cpu.max", "50000 100000")
	}
	w.nri.come(t)
	w.first = newProgram(t, w.m, nil)
	w.watch = beside.New(w.nri.dir, "/proc", "cri")
	w.watch.Look()
	w.proxy = newProgram(t, w.m, func(k engine.Kernel) engine.Kernel {
		w.yields = &beside.Yield{Kernel: k, Covered: w.watch.Covered}
		return w.yields
	})
	w.watch.OnGone(func() {
		w.proxy.TakeBack(w.yields.Left())
		w.proxy.Repair()
	})
	t.Cleanup(func() {
		w.nri.goes(t)
		w.first.stop()
		w.proxy.stop()
	})
	return w
}

// live lets time go by.
func (w *twins) live(d time.Duration) {
	w.t.Helper()
	for range int(d / time.Second) {
		time.Sleep(time.Second)
		w.nri.still(w.t)
		w.watch.Look()
	}
	synctest.Wait()
}

// stands checks the bursts of the pod and its container.
func (w *twins) stands(what, want string) {
	w.t.Helper()
	for _, d := range []string{dir, podDir} {
		if got := w.m.Tree.Get(w.t, d, "cpu.max.burst"); got != want {
			w.t.Errorf("%s: the burst of %s is %s, want %s", what, d, got, want)
		}
	}
}

// end ends koord-nri, within the second.
func (w *twins) end() {
	w.first.stop()
	w.nri.goes(w.t)
	w.live(2 * time.Second)
}

// A value to be taken back is asked for once. Who goes first may go before it has heard that the feature was switched off: then the one
// that had left it to him takes it back.
func TestYieldTakesBack(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w := newTwins(t)
		w.live(time.Minute)
		w.stands("at first", "50000")
		w.proxy.Views().SetFile(&strategy.Spec{}, "test")
		w.live(time.Second)
		w.stands("left to koord-nri", "50000")
		if n := w.proxy.direct(); n > 0 {
			t.Errorf("the proxy has written %d times", n)
		}
		w.end()
		w.stands("after its end", "0")
	})
}

// What it has done long ago is not done again: somebody else may have written there since.
func TestYieldForgets(t *testing.T) {
	inTime(t, func(t *testing.T) {
		w := newTwins(t)
		w.live(time.Minute)
		for _, p := range []*program{w.first, w.proxy} {
			p.Views().SetFile(&strategy.Spec{}, "test")
		}
		w.live(3 * time.Minute)
		w.stands("switched off", "0")
		for _, d := range []string{dir, podDir} {
			w.m.Tree.Set(t, d, "cpu.max.burst", "7000") // by hand
		}
		w.end()
		w.stands("after its end", "7000")
	})
}

// Left has each setting as it was asked for last, of the last minute or two, and once.
func TestLeft(t *testing.T) {
	inTime(t, func(t *testing.T) {
		covered := true
		y := &beside.Yield{Kernel: enginetest.New(t, "6.12", dir).Writer(t, nil), Covered: func() bool { return covered }}
		ask := func(p ...plan.Setting) {
			t.Helper()
			for _, r := range y.Apply(t.Context(), p, 1) {
				if (r.Outcome == apply.Skipped) != covered {
					t.Errorf("%v was %v", r.Setting, r.Outcome)
				}
			}
		}
		left := func(what string, want ...plan.Setting) {
			t.Helper()
			if got := y.Left(); got.String() != plan.Plan(want).String() {
				t.Errorf("%s: left\n%s\nwant\n%s", what, got, plan.Plan(want))
			}
		}
		observed := set(plan.MemoryHigh, 5)
		observed.Observe = true
		ask(set(plan.CPUBurst, 1), set(plan.MemoryMin, 2), observed)
		time.Sleep(61 * time.Second)
		ask(set(plan.CPUBurst, 3))
		left("after a minute", set(plan.CPUBurst, 3), set(plan.MemoryMin, 2))
		left("again")
		ask(set(plan.MemoryMin, 4))
		time.Sleep(59 * time.Second)
		ask(set(plan.CPUBurst, 5))
		time.Sleep(55 * time.Second)
		left("of the last two minutes", set(plan.CPUBurst, 5), set(plan.MemoryMin, 4))
		ask(set(plan.MemoryMin, 4))
		time.Sleep(2 * time.Minute)
		left("after two minutes")
		covered = false
		ask(set(plan.CPUBurst, 0))
		left("written")
	})
}
