// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"fmt"
	"testing"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// busy is a cgroup of a test: what its files say.
type busy struct {
	usage              int // ms
	periods, throttled int
	charge, anon       int // bytes
}

const memoryStat = "%[1]sinactive_anon 0\n%[1]sactive_anon %[2]d\n%[1]sinactive_file 0\n%[1]sactive_file 0\n%[1]sunevictable 0\n"

// put writes the files of a cgroup as the version has them.
func (b busy) put(t *testing.T, r *rig, path string) {
	t.Helper()
	if r.opts.Cgroup == node.CgroupV2 {
		dir := "sys/fs/cgroup" + path
		r.record.Put(t, dir+"/cpu.stat", fmt.Sprintf(cpuStat, b.usage*1000, b.periods, b.throttled))
		r.record.Put(t, dir+"/memory.current", fmt.Sprintln(b.charge))
		r.record.Put(t, dir+"/memory.stat", fmt.Sprintf(memoryStat, "", b.anon))
		return
	}
	r.record.Put(t, "sys/fs/cgroup/cpuacct"+path+"/cpuacct.usage", fmt.Sprintln(b.usage*1_000_000))
	r.record.Put(t, "sys/fs/cgroup/cpu"+path+"/cpu.stat", fmt.Sprintf("nr_periods %d\nnr_throttled %d\nthrottled_time 0\n", b.periods, b.throttled))
	r.record.Put(t, "sys/fs/cgroup/memory"+path+"/memory.usage_in_bytes", fmt.Sprintln(b.charge))
	r.record.Put(t, "sys/fs/cgroup/memory"+path+"/memory.stat", fmt.Sprintf(memoryStat, "total_", b.anon))
}

// bothVersions runs a test on a recorded pod of each cgroup version, with a slow turn every slow ticks.
func bothVersions(t *testing.T, slow int, test func(t *testing.T, r *rig, whom Targets)) {
	t.Helper()
	for name, v := range map[string]node.CgroupVersion{"6.18-v1": node.CgroupV1, "6.12-v2": node.CgroupV2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, name, v, func(o *Options) { o.Slow = slow })
			whom := targets(v)
			whom.Pods, whom.HostApps = whom.Pods[1:], nil
			whom.Pods[0].Containers = whom.Pods[0].Containers[:1]
			r.Follow(whom)
			test(t, r, whom)
		})
	}
}

// TestSpared: of a container whose pod has neither run nor been charged nothing is read, and it is known to use nothing; whatever it
// has done since shows when its pod shows it, to the last nanosecond.
func TestSpared(t *testing.T) {
	t.Parallel()
	bothVersions(t, 1000, func(t *testing.T, r *rig, whom Targets) {
		pod, one := whom.Pods[0], whom.Pods[0].Containers[0]
		now := busy{usage: 5000, charge: 8 << 20, anon: 4 << 20}
		all := now // of the pod
		all.usage += 1000
		for tick, step := range []struct {
			own, others int // ms that it and the pod's other processes run
			spared      int
			cores       float64 // -1: no sample
		}{
			{0, 0, 0, -1}, {500, 0, 0, 0.5}, {0, 0, 0, 0}, {0, 0, 1, 0}, {0, 0, 1, 0}, {0, 300, 0, 0}, {200, 100, 0, 0.2}, {0, 0, 0, 0}, {0, 0, 1, 0},
			{1, 0, 0, 0.001},
		} {
			now.usage += step.own
			all.usage += step.own + step.others
			now.put(t, r, one.Cgroup)
			all.put(t, r, pod.Cgroup)
			r.now += unit.Second
			report := r.scan(t)
			got, ok := r.value(sample.OfContainer(one.ID), sample.CPUUsage)
			if ok != (step.cores >= 0) || ok && (got < step.cores-1e-9 || got > step.cores+1e-9) || report.Spared != step.spared {
				t.Errorf("tick %d: %v cores, %v, want %v; %d spared, want %d", tick, got, ok, step.cores, report.Spared, step.spared)
			}
			for _, m := range []sample.Metric{sample.MemoryUsage, sample.MemoryCharged} {
				if v, ok := r.value(sample.OfContainer(one.ID), m); !ok || v == 0 {
					t.Errorf("tick %d: %s is %v, %v", tick, m, v, ok)
				}
			}
		}
	})
}

// TestDetails: memory.stat is read when the charge or the CPU time has moved enough for it to say something else, and at a slow turn
// for anything less; the charge itself is of each tick.
func TestDetails(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	bothVersions(t, 1000, func(t *testing.T, r *rig, whom Targets) {
		pod, one := whom.Pods[0], whom.Pods[0].Containers[0]
		now := busy{usage: 5000, charge: 8 * mib, anon: 4 * mib}
		seen := 4 * mib
		for tick, step := range []struct {
			ran, charged int
			read         bool
		}{
			{0, 0, true}, {1, 0, false}, {1, 4096, false}, {0, mib - 4096, true}, {0, 4096, false}, {9, 4096, false}, {1, 0, true}, {0, -mib, true},
			{0, 0, false}, {5, 0, false}, {5, 0, true},
		} {
			now.usage += step.ran
			now.charge += step.charged
			now.anon += 4096
			now.put(t, r, one.Cgroup)
			now.put(t, r, pod.Cgroup)
			if step.read {
				seen = now.anon
			}
			r.now += unit.Second
			r.scan(t)
			for _, s := range []sample.Subject{sample.OfPod(pod.UID), sample.OfContainer(one.ID)} {
				if got, ok := r.value(s, sample.MemoryUsage); !ok || got != float64(seen) {
					t.Errorf("tick %d: %s uses %v, %v, want %d", tick, s, got, ok, seen)
				}
			}
			if got, ok := r.value(sample.OfContainer(one.ID), sample.MemoryCharged); !ok || got != float64(now.charge) {
				t.Errorf("tick %d: charged %v, %v, want %d", tick, got, ok, now.charge)
			}
		}
	})
}

// TestDetailsAtSlowTurns: what moves too little is read at the slow turn, and what has come to rest twice more, because the kernel
// tells small changes late.
func TestDetailsAtSlowTurns(t *testing.T) {
	t.Parallel()
	bothVersions(t, 3, func(t *testing.T, r *rig, whom Targets) {
		pod, one := whom.Pods[0], whom.Pods[0].Containers[0]
		now := busy{usage: 5000, charge: 8 << 20}
		reads := 0
		last := -1.0
		scan := func() {
			now.anon += 4096
			now.put(t, r, one.Cgroup)
			now.put(t, r, pod.Cgroup)
			r.now += unit.Second
			r.scan(t)
			if got, _ := r.value(sample.OfContainer(one.ID), sample.MemoryUsage); got != last {
				reads++
				last = got
			}
		}
		scan()
		now.usage++
		scan()
		reads = 0
		for range 30 {
			scan()
		}
		if reads != settled {
			t.Errorf("%d readings of a cgroup that has come to rest, want %d", reads, settled)
		}
		reads = 0
		for range 30 {
			now.usage++
			scan()
		}
		if reads != 10 {
			t.Errorf("%d readings in 30 ticks of a cgroup that moves a little, want one at each slow turn", reads)
		}
	})
}

// TestThrottlingOfTheLast: periods go on after the last task; a container that its quota has stopped is read although its pod did not
// run.
func TestThrottlingOfTheLast(t *testing.T) {
	t.Parallel()
	bothVersions(t, 1000, func(t *testing.T, r *rig, whom Targets) {
		pod, one := whom.Pods[0], whom.Pods[0].Containers[0]
		now := busy{usage: 5000, charge: 1, periods: 100}
		for tick, step := range []struct {
			ran, periods, throttled int
			want                    float64 // -1: no sample
		}{
			{0, 0, 0, -1}, {50, 10, 0, 0}, {0, 2, 1, 0.5}, {0, 10, 10, 1}, {0, 10, 10, 1}, {0, 10, 0, 0}, {0, 5, 5, -1}, {1, 10, 5, 10. / 15},
		} {
			now.usage += step.ran
			now.periods += step.periods
			now.throttled += step.throttled
			now.put(t, r, one.Cgroup)
			now.put(t, r, pod.Cgroup)
			r.now += unit.Second
			r.scan(t)
			got, ok := r.value(sample.OfContainer(one.ID), sample.CPUThrottled)
			if ok != (step.want >= 0) || ok && (got < step.want-1e-9 || got > step.want+1e-9) {
				t.Errorf("tick %d: throttled %v, %v, want %v", tick, got, ok, step.want)
			}
		}
	})
}

// TestWatch: while they are watched, the CPU pressure of pods that are not best effort is of each tick; else it comes with the slow
// turn.
func TestWatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12-v2", node.CgroupV2, func(o *Options) { o.Slow = 5 })
	whom := targets(node.CgroupV2)
	r.Follow(whom)
	total := map[int]int{}
	tick := func() (be, ls float64) {
		for i, p := range whom.Pods {
			total[i] += 250_000
			r.record.Put(t, "sys/fs/cgroup"+p.Cgroup+"/cpu.pressure", fmt.Sprintf("some avg10=9.00 avg60=0.00 avg300=0.00 total=%d\n", total[i]))
		}
		r.now += unit.Second
		r.scan(t)
		value := func(uid string) float64 {
			v, ok := r.value(sample.OfPod(uid), sample.StallCPUSome)
			if !ok {
				return -1
			}
			return v
		}
		return value(beUID), value(lsUID)
	}
	for range 5 {
		tick()
	}
	count := func(ticks int) (be, ls int) {
		for range ticks {
			a, b := tick()
			if a >= 0 {
				be++
			}
			if b >= 0 {
				ls++
			}
			if b >= 0 && b != 250_000 {
				t.Errorf("the LS pod waits %v µs a second", b)
			}
		}
		return be, ls
	}
	if be, ls := count(10); be != 2 || ls != 2 {
		t.Errorf("unwatched: %d and %d samples in ten ticks, want two of each", be, ls)
	}
	r.Watch(true)
	if be, ls := count(10); be != 2 || ls != 10 {
		t.Errorf("watched: %d and %d samples in ten ticks, want two of the best-effort pod and ten of the other", be, ls)
	}
	r.Watch(false)
	if be, ls := count(10); be != 2 || ls != 2 {
		t.Errorf("afterwards: %d and %d samples in ten ticks", be, ls)
	}
}

// TestPressureAtRest: a container whose pressure is zero is looked at again when its pod's has grown.
func TestPressureAtRest(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12-v2", node.CgroupV2, nil)
	whom := targets(node.CgroupV2)
	whom.Pods, whom.HostApps = whom.Pods[1:], nil
	pod, one := whom.Pods[0].Cgroup, whom.Pods[0].Containers[0]
	r.Follow(whom)
	const line = "some avg10=%s avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
	put := func(cgroup, avg string, total int) {
		for _, f := range []string{"cpu", "memory", "io"} {
			r.record.Put(t, "sys/fs/cgroup"+cgroup+"/"+f+".pressure", fmt.Sprintf(line, avg, total))
		}
	}
	for i, step := range []struct {
		podTotal, total int
		avg             string
		want            float64
	}{
		{10, 10, "0.00", 0},
		{20, 20, "0.00", 0}, // the average follows
		{20, 20, "3.00", 0.03},
		{20, 20, "1.00", 0.01},
		{20, 20, "0.00", 0},
		{20, 20, "7.00", 0}, // cannot be: what is not read shows nothing
		{30, 20, "0.00", 0},
		{40, 30, "2.00", 0.02},
	} {
		put(pod, "0.00", step.podTotal)
		put(one.Cgroup, step.avg, step.total)
		r.now += unit.Second
		r.scan(t)
		for _, m := range []sample.Metric{sample.PSICPUSome, sample.PSIMemorySome, sample.PSIIOSome} {
			if got, ok := r.value(sample.OfContainer(one.ID), m); !ok || got < step.want-1e-9 || got > step.want+1e-9 {
				t.Errorf("step %d: %s %v, %v, want %v", i, m, got, ok, step.want)
			}
		}
		if _, ok := r.value(sample.OfContainer(one.ID), sample.PSICPUFull); !ok {
			t.Errorf("step %d: no full line", i)
		}
	}
}

// TestParents: while the directory of many pods stands, none of them is read; when it has moved, each of them is, and a container
// only where its pod has.
func TestParents(t *testing.T) {
	t.Parallel()
	bothVersions(t, 1000, func(t *testing.T, r *rig, _ Targets) {
		const dir, pods = "/many", 5
		var whom Targets
		state := map[string]*busy{dir: {usage: 1000, charge: 64 << 20}}
		for i := range pods {
			p := Pod{UID: fmt.Sprint("uid", i), Cgroup: fmt.Sprint(dir, "/pod", i)}
			p.Containers = []Container{{fmt.Sprint("c", i), p.Cgroup + "/c"}}
			for _, path := range []string{p.Cgroup, p.Cgroup + "/c"} {
				state[path] = &busy{usage: 100, charge: 8 << 20, anon: 4 << 20}
			}
			whom.Pods = append(whom.Pods, p)
		}
		r.Follow(whom)
		scan := func() Report {
			for path, b := range state {
				b.put(t, r, path)
			}
			r.now += unit.Second
			return r.scan(t)
		}
		uses := func(what string, s sample.Subject, m sample.Metric, want float64) {
			t.Helper()
			if got, ok := r.value(s, m); !ok || got < want-1e-9 || got > want+1e-9 {
				t.Errorf("%s: %s of %s is %v, %v, want %v", what, m, s, got, ok, want)
			}
		}
		scan()
		scan() // who was new is read twice
		if report := scan(); report.Spared != 2*pods || report.Cgroups != 2*pods {
			t.Errorf("at rest: %+v", report)
		}
		uses("at rest", sample.OfPod("uid2"), sample.CPUUsage, 0)
		one := whom.Pods[2]
		for _, path := range []string{dir, one.Cgroup, one.Containers[0].Cgroup} {
			state[path].usage += 300
		}
		if report := scan(); report.Spared != pods-1 {
			t.Errorf("one has run: %+v", report)
		}
		uses("it ran", sample.OfPod("uid2"), sample.CPUUsage, 0.3)
		uses("it ran", sample.OfContainer("c2"), sample.CPUUsage, 0.3)
		uses("another one", sample.OfPod("uid3"), sample.CPUUsage, 0)
		other := whom.Pods[3]
		for _, path := range []string{dir, other.Cgroup, other.Containers[0].Cgroup} {
			state[path].charge += 2 << 20
			state[path].anon += 2 << 20
		}
		scan()
		uses("charged", sample.OfContainer("c3"), sample.MemoryCharged, 10<<20)
		uses("charged", sample.OfPod("uid3"), sample.MemoryUsage, 6<<20)
		scan()
		state[other.Cgroup].usage += 300 // cannot be without its directory: what is not read shows nothing
		if report := scan(); report.Spared != 2*pods {
			t.Errorf("at rest again: %+v", report)
		}
		uses("at rest again", sample.OfPod("uid3"), sample.CPUUsage, 0)
		r.Follow(Targets{Pods: whom.Pods[:manyPods-1]})
		scan()
		if n := len(r.tick.parents); n != 0 {
			t.Errorf("%d directories are held for %d pods", n, manyPods-1)
		}
	})
}
