// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package beside_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/daemon/boottime"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// units notes the properties that were set.
type units struct{ r *rig }

// Has implements apply.Units.
func (units) Has(string, plan.Knob) bool { return true }

// Held implements apply.Units.
func (units) Held(context.Context, string) (map[plan.Knob]string, error) { return nil, nil }

// Set implements apply.Units.
func (u units) Set(_ context.Context, _ string, settings []plan.Setting) error {
	for i := range settings {
		u.r.told = append(u.r.told, "unit "+settings[i].Knob.String())
	}
	return nil
}

// inTime runs a test in a bubble, beside the others.
func inTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// While the plugin covers the containers it has two intervals to bring a value back; then it is brought back, in its unit
// too.
func TestWhatIsLeftLyingIsMended(t *testing.T) {
	inTime(t, func(t *testing.T) {
		r := newRig(t, true)
		r.wants = plan.Plan{set(plan.MemoryHigh, 1<<20), set(plan.MemoryLow, 4096)}
		r.m.Tree.Set(t, dir, "memory.low", "4096") // it has seen to that one
		r.pass(25 * time.Second)
		r.stands("in its time", "memory.high", "max")
		r.m.Tree.Set(t, dir, "memory.high", "1048576")
		r.pass(30 * time.Second)
		r.stands("it was late", "memory.high", "1048576")
		if w := r.written(); w != "" {
			t.Errorf("we wrote %s", w)
		}
		r.m.Tree.Set(t, dir, "memory.high", "2097152")
		r.pass(20 * time.Second)
		r.stands("somebody else's value, in its time", "memory.high", "2097152")
		r.pass(10 * time.Second)
		r.stands("after it", "memory.high", "1048576", "unchanged memory.low", "written memory.high")
		for range 2 { // a queue that is worked off later, and once
			r.ward.SyncUnits(t.Context(), r.wants, 7)
		}
		r.stands("its unit", "memory.high", "1048576", "unit memory.high")
		r.pass(time.Minute)
		r.stands("later", "memory.high", "1048576")
		if w := r.written(); w != dir+"/memory.high=1048576" {
			t.Errorf("we wrote %s", w)
		}
	})
}

// What is missing is what has never stood since it was asked for: the plugin has not come to it yet. What it wants otherwise, what somebody has
// written over later, and what is gone is not.
func TestMissing(t *testing.T) {
	inTime(t, func(t *testing.T) {
		r := newRig(t, true)
		missing := func(when string, want ...string) {
			t.Helper()
			var got []string
			for _, m := range r.ward.Missing() {
				got = append(got, m.String())
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: missing %q, want %q", when, got, want)
			}
		}
		missing("nothing is wanted")
		r.wants = plan.Plan{set(plan.MemoryHigh, 1<<20), set(plan.MemoryLow, 4096)}
		r.present(r.wants...)
		missing("it has written none", `memory.high of container default/web/app: want 1048576, got "-1"`, `memory.low of container default/web/app: want 4096, got "0"`)
		r.m.Tree.Set(t, dir, "memory.high", "1048576")
		missing("one", `memory.low of container default/web/app: want 4096, got "0"`)
		r.m.Tree.Set(t, dir, "memory.low", "4096")
		missing("both")
		r.pass(22 * time.Second) // it has been read back since the engine asked for it again
		r.m.Tree.Set(t, dir, "memory.low", "0")
		missing("it stood: drift")
		r.m.Tree.Set(t, dir, "memory.low", "4096")
		r.wants = plan.Plan{set(plan.MemoryHigh, 2<<20), set(plan.MemoryLow, 4096)}
		r.present(r.wants...)
		missing("another value", `memory.high of container default/web/app: want 2097152, got "1048576"`)
		r.nri.says(t, plan.MemoryHigh, "1048576", journal.ViaDirect)
		r.pass(40 * time.Second)
		missing("its own word")
		r.stands("its own word", "memory.high", "1048576")
		r.m.Tree.Rmdir(t, dir)
		missing("it has ended")
	})
}

// What the plugin has recorded after we began to want something else is left to it: it knows of an update of the container
// that we have not heard of. When something else stands it is drift again. What it said before is no answer.
func TestItsNewerWordHolds(t *testing.T) {
	inTime(t, func(t *testing.T) {
		r := newRig(t, true)
		r.nri.says(t, plan.CPUQuota, "30000", journal.ViaRuntime)
		r.m.Tree.Set(t, dir, "cpu.max", "30000 100000")
		r.pass(20 * time.Second)
		r.wants = plan.Plan{set(plan.CPUQuota, 50000)}
		r.pass(time.Minute)
		r.stands("its older word", "cpu.max", "50000 100000", "written cpu.quota")
		r.nri.says(t, plan.CPUQuota, "80000", journal.ViaRuntime)
		r.m.Tree.Set(t, dir, "cpu.max", "80000 100000")
		r.pass(5 * time.Minute)
		r.stands("its newer word", "cpu.max", "80000 100000")
		r.m.Tree.Set(t, dir, "cpu.max", "90000 100000")
		r.pass(time.Minute)
		r.stands("neither's", "cpu.max", "50000 100000", "written cpu.quota")
		r.nri.says(t, plan.CPUQuota, "90000", journal.ViaObserve)
		r.m.Tree.Set(t, dir, "cpu.max", "90000 100000")
		r.pass(time.Minute)
		r.stands("what it only observed", "cpu.max", "50000 100000", "written cpu.quota")
	})
}

// A plugin that gets stuck while a value moves every second has said a moment ago what was wanted then: that is no word of its own. What it
// says later is, even if that is the same.
func TestWhoIsStuckIsMended(t *testing.T) {
	for name, tc := range map[string]struct {
		// behind is how many steps it has not taken, late how long after the last one it says that it wants what stands.
		behind int
		late   time.Duration
		want   string
	}{
		"one step":      {behind: 1, want: "60000"},
		"three steps":   {behind: 3, want: "60000"},
		"says it again": {behind: 1, late: time.Second, want: "59000"},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				r := newRig(t, true)
				r.pass(10 * time.Second)
				for v := range int64(5) {
					r.wants = plan.Plan{set(plan.CPUQuota, 56000+v*1000)}
					r.present(r.wants...)
					if now := plan.Int(56000 + v*1000).String(); v <= 4-int64(tc.behind) {
						r.m.Tree.Set(t, dir, "cpu.max", now+" 100000")
						r.nri.says(t, plan.CPUQuota, now, journal.ViaDirect)
					}
					r.pass(time.Second)
				}
				if tc.late > 0 {
					r.pass(tc.late)
					r.nri.says(t, plan.CPUQuota, "59000", journal.ViaDirect)
				}
				r.pass(time.Minute)
				if got := r.m.Tree.Get(t, dir, "cpu.max"); got != tc.want+" 100000" {
					t.Errorf("cpu.max is %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// Whether its word is newer is told by the machine's own clock, where its record is of this boot: the time of day may have been set
// between the two.
func TestItsNewerWordHoldsWhenTheTimeWasSet(t *testing.T) {
	for name, tc := range map[string]struct {
		boot string
		// set is how far the time of day of its word lies beside ours, ago how long before our want it was said.
		set, ago time.Duration
		holds    bool
	}{
		"set back, its word is newer":     {kerneltest.BootID, -time.Hour, 0, true},
		"set back, its word is older":     {kerneltest.BootID, time.Hour, time.Minute, false},
		"a moment earlier: the same news": {kerneltest.BootID, 0, interval / 2, true},
		"another boot's":                  {"another", time.Hour, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				r := newRigOf(t, true, tc.boot, func() time.Duration { return boottime.Now() + tc.ago })
				r.wants = plan.Plan{set(plan.CPUQuota, 50000)}
				r.present(r.wants...)
				r.nri.set = tc.set
				r.nri.says(t, plan.CPUQuota, "80000", journal.ViaRuntime)
				r.m.Tree.Set(t, dir, "cpu.max", "80000 100000")
				r.pass(time.Minute)
				if tc.holds {
					r.stands("its word", "cpu.max", "80000 100000")
				} else {
					r.stands("ours", "cpu.max", "50000 100000", "written cpu.quota")
				}
			})
		})
	}
}

// When the plugin goes, its end is seen within a second, nothing is written before it was learned what it knew, and all of
// it then. A wish to take something back, which the engine says once, is not lost.
func TestTakeOver(t *testing.T) {
	inTime(t, func(t *testing.T) {
		r := newRig(t, true)
		r.m.Tree.Set(t, dir, "memory.high", "1048576")
		r.m.Tree.Set(t, dir, "memory.low", "4096")
		r.present(set(plan.MemoryHigh, -1)) // not wanted any more
		r.wants = plan.Plan{set(plan.MemoryLow, 8192)}
		r.pass(8 * time.Second)
		r.nri.goes(t)
		r.pass(time.Second)
		r.stands("at once", "memory.low", "4096", "lost")
		r.present(r.wants...)
		r.stands("before it is released", "memory.low", "4096")
		r.ward.Release()
		r.present(r.wants...) // as the repair pass does that was asked for
		r.stands("after it", "memory.low", "8192", "released")
		r.pass(interval + time.Second)
		r.stands("what was to be taken back", "memory.high", "max", "written memory.high")
		if r.ward.Holding() {
			t.Error("still held back")
		}
		r.wants = nil
		r.present(set(plan.MemoryLow, 0))
		r.pass(time.Minute)
		r.stands("alone", "memory.low", "0")
	})
}

// A runtime that does not tell what the plugin knew does not keep us from taking over.
func TestTakeOverWithoutTheRuntime(t *testing.T) {
	inTime(t, func(t *testing.T) {
		r := newRig(t, true)
		r.pass(time.Second)
		r.nri.goes(t)
		r.pass(3 * time.Second)
		r.stands("in grace", "memory.low", "0", "lost")
		r.pass(time.Second)
		r.stands("after it", "memory.low", "0", "released")
		r.ward.Release() // late, and nothing any more
		r.present(set(plan.MemoryLow, 4096))
		r.stands("alone", "memory.low", "4096")
	})
}

// A plugin that is back before it was taken over from keeps everything, and the same at any later time; what we had wanted of
// a knob meanwhile is forgotten when the engine writes something else.
func TestBackAgain(t *testing.T) {
	inTime(t, func(t *testing.T) {
		r := newRig(t, true)
		r.pass(time.Second)
		r.nri.goes(t)
		r.pass(time.Second)
		r.nri.come(t)
		r.pass(time.Second)
		r.ward.Release()
		r.present(set(plan.MemoryLow, 4096))
		r.stands("back in time", "memory.low", "0", "lost")
		r.nri.goes(t)
		r.pass(time.Second)
		r.ward.Release()
		r.present(set(plan.MemoryLow, 8192))
		r.stands("taken over", "memory.low", "8192", "lost", "released")
		r.pass(interval + time.Second)
		r.nri.come(t)
		r.pass(time.Second)
		r.present(set(plan.MemoryLow, 0))
		r.stands("back later", "memory.low", "8192")
	})
}

// Who starts first writes, until the other one is there: for a second at most both do, the same.
func TestBothStart(t *testing.T) {
	inTime(t, func(t *testing.T) {
		r := newRig(t, false)
		r.present(set(plan.MemoryLow, 4096))
		r.stands("alone", "memory.low", "4096")
		r.nri.come(t)
		r.pass(time.Second)
		r.present(set(plan.MemoryLow, 8192))
		r.stands("covered", "memory.low", "4096")
		if !r.ward.Holding() {
			t.Error("not held back")
		}
	})
}

// A container that is gone is no drift, one that cannot be brought to its value is tried now and then, and one that the
// engine has forgotten is no business of ours.
func TestNothingToMend(t *testing.T) {
	inTime(t, func(t *testing.T) {
		r := newRig(t, true)
		r.m.Tree.Rmdir(t, dir)
		r.wants = plan.Plan{set(plan.MemoryLow, 4096)}
		r.pass(time.Minute)
		r.m.Tree.Mkdir(t, dir)
		r.stands("gone", "memory.low", "0")
		r.pass(10 * time.Second)
		r.wants = nil
		must(t, r.ward.Forget(set(plan.MemoryLow, 0).Target))
		r.pass(time.Minute)
		r.stands("forgotten", "memory.low", "0")
		r.wants = plan.Plan{set(plan.CPUBvt, 2)} // mainline has none
		r.pass(5 * time.Minute)
		failed := apply.Failed.String() + " cpu.bvt"
		r.stands("impossible", "memory.low", "0", failed, failed, failed, failed)
		observed := set(plan.MemoryLow, 4096)
		observed.Observe = true
		r.wants = plan.Plan{observed}
		r.pass(time.Minute)
		r.stands("observed", "memory.low", "0")
	})
}

// What was taken back, and has stood, is nobody's any more.
func TestTakenBackOnce(t *testing.T) {
	inTime(t, func(t *testing.T) {
		r := newRig(t, true)
		r.present(set(plan.MemoryHigh, -1))
		r.pass(15 * time.Second)
		r.m.Tree.Set(t, dir, "memory.high", "1048576") // somebody else's
		r.pass(5 * time.Minute)
		r.stands("later", "memory.high", "1048576")
	})
}

// The ward ends with the engine's writes its own, unless others live on.
func TestEnd(t *testing.T) {
	inTime(t, func(t *testing.T) {
		for _, alive := range []bool{true, false} {
			r := newRig(t, true)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.ward.Run(ctx) }()
			time.Sleep(time.Second / 2)
			if !alive {
				r.nri.goes(t)
			}
			cancel()
			must(t, <-done)
			if r.ward.Holding() != alive {
				t.Errorf("another lives on: %v, held back: %v", alive, r.ward.Holding())
			}
		}
	})
}
