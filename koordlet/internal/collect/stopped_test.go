// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// limitedRig is a pod with two containers that run all the time, read slowly every ten ticks.
type limitedRig struct {
	*rig
	pod     Pod
	ran     int
	stopped map[string]int    // µs, by cgroup
	periods map[string][2]int // and those in which it was stopped
	waited  int               // µs
}

func newLimitedRig(t *testing.T) *limitedRig {
	t.Helper()
	r := &limitedRig{rig: newRig(t, "6.12-v2", node.CgroupV2, func(o *Options) { o.Slow = 10 }), stopped: map[string]int{}, periods: map[string][2]int{}}
	r.pod = targets(node.CgroupV2).Pods[1]
	r.follow()
	return r
}

func (r *limitedRig) follow() {
	one := r.pod
	one.Containers = append([]Container(nil), r.pod.Containers...)
	r.Follow(Targets{Pods: []Pod{one}})
}

// put shows what everybody was stopped for by now.
func (r *limitedRig) put(t *testing.T) {
	t.Helper()
	r.ran += 1000
	for _, cgroup := range []string{r.pod.Cgroup, r.pod.Containers[0].Cgroup, r.pod.Containers[1].Cgroup} {
		text := fmt.Sprintf(cpuStat, 100_000_000+r.ran, 100+r.periods[cgroup][0], 10+r.periods[cgroup][1])
		r.record.Put(t, "sys/fs/cgroup"+cgroup+"/cpu.stat", strings.Replace(text, "throttled_usec 0", fmt.Sprint("throttled_usec ", r.stopped[cgroup]), 1))
	}
	r.record.Put(t, "sys/fs/cgroup"+r.pod.Cgroup+"/cpu.pressure",
		fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", r.waited))
}

// stop has one of them stopped, which its pod waits for.
func (r *limitedRig) stop(cgroup string, micros int) { r.stopped[cgroup] += micros; r.waited += micros }

// tick tells a pod's pressure and its own part of it, -1 where it is not told.
func (r *limitedRig) tick(t *testing.T) (some, own float64) {
	t.Helper()
	r.put(t)
	r.now += unit.Second
	r.scan(t)
	value := func(m sample.Metric) float64 {
		v, ok := r.value(sample.OfPod(r.pod.UID), m)
		if !ok {
			return -1
		}
		return v
	}
	return value(sample.StallCPUSome), value(sample.StallCPUOwn)
}

// turn ticks until the pressure is told.
func (r *limitedRig) turn(t *testing.T) (some, own float64) {
	t.Helper()
	for range 30 {
		if some, own = r.tick(t); some >= 0 {
			return some, own
		}
		if own >= 0 {
			t.Errorf("told of an interval of its own: %v", own)
		}
	}
	t.Fatal("never told")
	return 0, 0
}

// TestOwnStall: what a pod's own limits make of its pressure is told of the very interval of that: of ten seconds though they stopped it in the first two, and
// of one second while it is watched. A container that comes or goes in between counts.
func TestOwnStall(t *testing.T) {
	t.Parallel()
	r := newLimitedRig(t)
	first, second := r.pod.Containers[0], r.pod.Containers[1]
	check := func(what string, some, own, wantSome, wantOwn float64) {
		t.Helper()
		if some < wantSome-1 || some > wantSome+1 || own < wantOwn-1 || own > wantOwn+1 {
			t.Errorf("%s: pressure %v, by its own limits %v; want %v, %v", what, some, own, wantSome, wantOwn)
		}
	}
	r.stopped[first.Cgroup] = 77_000_000 // before it was followed
	r.turn(t)                            // the first reading
	some, own := r.turn(t)
	check("calm", some, own, 0, -1)
	for range 2 {
		r.stop(first.Cgroup, 750_000)
		r.tick(t)
	}
	some, own = r.turn(t)
	check("stopped in the first two of ten seconds", some, own, 150_000, 150_000)
	r.waited += 2_000_000
	some, own = r.turn(t)
	check("others make it wait", some, own, 200_000, -1)
	r.stop(r.pod.Cgroup, 300_000)
	r.stop(second.Cgroup, 700_000)
	r.waited += 500_000
	some, own = r.turn(t)
	check("its own limit, a container's and others", some, own, 150_000, 100_000)

	// One that ends takes nothing with it, and one that has just been made was stopped from its beginning.
	r.stop(second.Cgroup, 400_000)
	r.tick(t)
	r.pod.Containers[1] = Container{"new", r.pod.Cgroup + "/cri-containerd-new.scope"}
	r.stop(r.pod.Containers[1].Cgroup, 600_000)
	r.follow()
	some, own = r.turn(t)
	check("one gone, one new", some, own, 100_000, 100_000)

	// Watched, in the middle of a turn: the first second's interval begins at the last turn.
	r.tick(t)
	r.stop(first.Cgroup, 400_000)
	r.tick(t)
	r.Watch(true)
	r.waited += 200_000
	some, own = r.tick(t)
	check("watched", some, own, 200_000, 400_000./3)
	r.stop(first.Cgroup, 700_000)
	some, own = r.tick(t)
	check("watched, stopped", some, own, 700_000, 700_000)
	some, own = r.tick(t)
	check("watched, stopped no more", some, own, 0, -1)
}

// TestStopped: between two ticks the kernel's counters are asked, and the next tick tells all the same.
func TestStopped(t *testing.T) {
	t.Parallel()
	r := newLimitedRig(t)
	first := r.pod.Containers[0]
	if _, _, ok := r.Stopped(r.pod.UID); ok {
		t.Error("before the first tick")
	}
	r.stopped[first.Cgroup] = 5_000_000
	r.tick(t)
	ticked := r.now
	check := func(what string, want float64) {
		t.Helper()
		r.now = ticked + unit.Second/2
		if micros, since, ok := r.Stopped(r.pod.UID); !ok || since != ticked || micros != want {
			t.Errorf("%s: %v since %v, %v; want %v since %v", what, micros, since, ok, want, ticked)
		}
		r.now = ticked
	}
	check("nothing new", 0)
	r.stopped[first.Cgroup] += 60_000
	r.stopped[r.pod.Cgroup] += 20_000
	r.put(t)
	check("both", 80_000)
	check("asked again", 80_000)
	r.tick(t)
	ticked = r.now
	if v, ok := r.value(sample.OfContainer(first.ID), sample.CPUThrottledTime); !ok || v != 60_000 {
		t.Errorf("the tick tells %v, %v", v, ok)
	}
	check("told by the tick", 0)
	r.stopped[first.Cgroup] = 30_000 // made anew
	r.put(t)
	check("a counter that has fallen", 30_000)
	if _, _, ok := r.Stopped("nobody"); ok {
		t.Error("a pod that is not followed")
	}
}

// pass has periods pass, in some of which everybody is stopped on so many CPUs for so long.
func (r *limitedRig) pass(periods, stopped, cpus, micros int) {
	for _, cgroup := range []string{r.pod.Cgroup, r.pod.Containers[0].Cgroup} {
		p := r.periods[cgroup]
		r.periods[cgroup] = [2]int{p[0] + periods, p[1] + stopped}
		r.stopped[cgroup] += stopped * cpus * micros
	}
	r.waited += stopped * micros
}

// TestOwnStallOfManyCPUs: the kernel sums a stop up over CPUs, in a pod and in its container; nobody waits longer for it than for the periods in which it was
// stopped, whatever period the kubelet was told, and nobody longer than time has passed.
func TestOwnStallOfManyCPUs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		periods, stopped, cpus, micros int     // in each second
		own                            float64 // µs in a second
		short                          float64 // µs by a tenth of a second after it
	}{
		"once a second":               {10, 1, 10, 20_000, 2e6 / 9, 2e5},
		"on one CPU":                  {10, 1, 1, 20_000, 40_000, 40_000},
		"in each period":              {10, 10, 10, 90_000, 1e6, 2e5},
		"on hundreds":                 {10, 1, 500, 90_000, 2e6 / 9, 2e5},
		"a period of 10 ms":           {100, 1, 10, 5_000, 2e6 / 99, 2e5 / 9},
		"a period of half a second":   {2, 1, 1, 300_000, 6e5, 2e5},
		"runs for two periods only":   {2, 1, 10, 20_000, 4e5, 2e5},
		"ended before the period did": {10, 0, 0, 0, 3e5, 2e5},
	} {
		r := newLimitedRig(t)
		uncounted := func() {
			if tc.stopped == 0 {
				r.stopped[r.pod.Cgroup] += 300_000
			}
		}
		r.turn(t)
		for range 9 {
			r.pass(tc.periods, tc.stopped, tc.cpus, tc.micros)
			uncounted()
			if some, _ := r.tick(t); some >= 0 {
				t.Fatal("told early")
			}
		}
		r.pass(tc.periods, tc.stopped, tc.cpus, tc.micros)
		uncounted()
		if some, own := r.tick(t); some < 0 || own < tc.own-2 || own > tc.own+2 {
			t.Errorf("%s: of pressure %v its own limits make %v, want %v", name, some, own, tc.own)
		}
		r.pass(max(tc.periods/10, tc.stopped, 1), tc.stopped, tc.cpus, tc.micros)
		uncounted()
		r.put(t)
		r.now += unit.Second / 10
		if micros, _, ok := r.Stopped(r.pod.UID); !ok || micros < tc.short-1 || micros > tc.short+1 {
			t.Errorf("%s: by now %v, %v, want %v", name, micros, ok, tc.short)
		}
	}
}
