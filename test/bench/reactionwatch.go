// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/kernel/psi"
)

const (
	// readEvery lies between two reads of the quota: with the read itself, emulated, it stays below a millisecond.
	readEvery = 250 * time.Microsecond
	// feelEvery lies between two reads of the pressure. Each read weighs the time since the one before by whole jiffies (of 4 ms here) in
	// which the CPU was not idle (collect_percpu_times of kernel/sched/psi.c): who asks more often makes the kernel forget what it counts.
	feelEvery = 10 * time.Millisecond
	// unlimited is the quota of a class that has none.
	unlimited = math.MaxInt
	// leastRoom is the quota from which a load can take something: two CPUs, twice what the best-effort pod uses.
	leastRoom = 2000
	// belowUse is a quota by which the best-effort pod has less than it uses: its one process computes on one CPU all the time. The formula
	// never gives so little here.
	belowUse = 1000
	// leastTaken is most of what the LS pod's load uses, half of a CPU, which the formula takes from the class.
	leastTaken = 400
	// calmWobble is what the quota moves by while nothing happens, since the system's use does.
	calmWobble = 400
	// calmFor is how long it has to stand still before a load begins.
	calmFor = 3 * time.Second
)

// watchedTrigger is koordlet's default: so long a stall of an LS pod in so long a window calls it.
func watchedTrigger() psi.Trigger {
	p := config.DefaultKoordlet().Pressure
	return psi.Trigger{Kind: psi.Some, Stall: p.Stall.Std(), Window: p.Window.Std()}
}

// turn is one round: a load comes to an LS pod, and the best-effort class gives way. Instants count from the load's begin, 0 is never;
// quotas are in milli-CPUs.
type turn struct {
	Way string
	// Less is when the class had less than at the load's begin, Taken when it had less by leastTaken, Held when it had less than it
	// uses; all as the kernel's file says.
	Less, Taken, Held time.Duration
	// Pressed is when the pod had been stalled for as long as a trigger asks for, by the kernel's total.
	Pressed time.Duration
	// Called is when a trigger of the benchmark's own fired, beside koordlet's.
	Called time.Duration
	// Steps are the values that the quota took, the first at the load's begin.
	Steps []step
	// Reads of the quota, over what time, the longest time between two, and that before the read that showed the answer.
	Reads           int
	Over, Gap, Last time.Duration
	// Between is how often koordlet has decided between two ticks, Step how long that took from its trigger to the end of its writes, in
	// seconds on average.
	Between uint64
	Step    float64

	// looked is when the pressure was read last, and stalled what it was.
	looked, stalled time.Duration
}

// step is a quota and when it was seen first.
type step struct {
	At    time.Duration
	Quota int
}

// sees takes in the quota that was read just now; Steps has the one at the load's begin.
func (t *turn) sees(now time.Duration, quota int) {
	t.Reads++
	t.Last, t.Over = now-t.Over, now
	t.Gap = max(t.Gap, t.Last)
	n := len(t.Steps)
	if t.Steps[n-1].Quota != quota {
		t.Steps = append(t.Steps, step{now, quota})
	}
	begin := t.Steps[0].Quota
	first := func(at *time.Duration, is bool) {
		if is && *at == 0 {
			*at = now
		}
	}
	first(&t.Less, quota < begin)
	first(&t.Taken, quota <= begin-leastTaken)
	first(&t.Held, quota < belowUse)
}

// feels takes in how long the pod has been stalled since the load's begin, and when that was asked. Between two readings the total has
// grown no faster than time: the earliest instant counts at which it can have been as much, so that no reaction is told too short.
func (t *turn) feels(asked, stalled time.Duration) {
	if much := watchedTrigger().Stall; t.Pressed == 0 && stalled >= much {
		t.Pressed = max(t.looked+much-t.stalled, 1)
	}
	t.looked, t.stalled = asked, stalled
}

// done: the tick alone goes by what the pods use, and need not hold the class below its use.
func (t *turn) done() bool {
	if t.Way == wayTriggers {
		return t.Held != 0
	}
	return t.Taken != 0
}

// calm is since when the quota has stood still, and between what.
type calm struct {
	since     time.Time
	low, high int
	// room is the quota from which a load can take something, wobble what the quota moves by while nothing happens.
	room, wobble int
}

// see takes in a quota and reports whether it has stood still for long enough.
func (c *calm) see(now time.Time, quota int) bool {
	low, high := min(c.low, quota), max(c.high, quota)
	if c.since.IsZero() || c.low < c.room || quota < c.room || quota == unlimited || high-low > c.wobble {
		c.since, c.low, c.high = now, quota, quota
		return false
	}
	c.low, c.high = low, high
	return now.Sub(c.since) >= calmFor
}

// awaitCalm waits until the quota stands still, and then for a part of a second.
func awaitCalm(ctx context.Context, c calm, allowed func() (int, error)) error {
	err := eventually(ctx, calmWithin, 50*time.Millisecond, func() error {
		quota, err := allowed()
		if err == nil && !c.see(time.Now(), quota) {
			err = fmt.Errorf("the quota of the best-effort class is %s CPUs and does not stand still", cpus(quota))
		}
		return err
	})
	if err != nil {
		return err
	}
	return wait(ctx, rand.N(time.Second))
}

// lookout reads the quota of the best-effort class and the pressure of an LS pod (cgroup v2), with files that stay open.
type lookout struct {
	quota    *gauge
	pressure *os.File
	buf      []byte
}

func newLookout(class, pod string) (*lookout, error) {
	quota, err := openGauge(class, true)
	if err != nil {
		return nil, err
	}
	l := &lookout{quota: quota, buf: make([]byte, 4096)}
	if l.pressure, err = os.Open(filepath.Join(pod, "cpu.pressure")); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the kernel's files: %w", err), quota.close())
	}
	return l, nil
}

func (l *lookout) close() error { return errors.Join(l.quota.close(), l.pressure.Close()) }

// stalled is the pod's stall since its cgroup was made.
func (l *lookout) stalled() (time.Duration, error) {
	text, err := contents(l.pressure, l.buf)
	var s psi.Stat
	if err == nil {
		err = psi.Parse(text, &s)
	}
	if err != nil {
		return 0, fmt.Errorf("read pressure: %w", err)
	}
	return time.Duration(s.Some.TotalUS) * time.Microsecond, nil
}

// watch looks until the turn is done or the limit has passed; rested is the pod's stall at the load's begin.
func (l *lookout) watch(ctx context.Context, begun time.Time, rested, limit time.Duration, t *turn) error {
	rest := unix.NsecToTimespec(readEvery.Nanoseconds())
	for done := false; !done && time.Since(begun) < limit && ctx.Err() == nil; {
		if asked := time.Since(begun); t.Pressed == 0 && asked-t.looked >= feelEvery {
			now, err := l.stalled()
			if err != nil {
				return err
			}
			t.feels(asked, now-rested)
		}
		if !t.done() {
			quota, err := l.quota.allowed()
			if err != nil {
				return err
			}
			t.sees(time.Since(begun), quota)
		}
		done = t.done() && (t.Pressed != 0 || time.Since(begun) > t.Over+feelEvery)
		_ = unix.Nanosleep(&rest, nil) // a shorter one does no harm
	}
	return ctx.Err()
}
