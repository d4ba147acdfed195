// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/taskstats"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// latencies is a rig whose latencies come from processes: a pod with two containers, of one process each.
type latencies struct {
	*rig
	whom Targets
	now  map[int]taskstats.Delays
	ran  int
}

func newLatencies(t *testing.T) *latencies {
	t.Helper()
	l := &latencies{whom: targets(node.CgroupV2), now: map[int]taskstats.Delays{}}
	l.rig = newRig(t, "6.12-v2", node.CgroupV2, func(o *Options) { o.Without = append(o.Without, "alloclatency", "disklatency") })
	l.whom.Pods = l.whom.Pods[1:]
	ask := func(_ *root.Buffer, pid int) (taskstats.Delays, error) {
		d, ok := l.now[pid]
		if !ok {
			return taskstats.Delays{}, fmt.Errorf("ask: %w", unix.ESRCH)
		}
		return d, nil
	}
	for _, c := range []collector{&runDelays{stop: func() {}, ask: ask}, allocLatencies{tasks: true}, diskLatencies{tasks: true}} {
		l.running = append(l.running, running{c})
	}
	l.Follow(l.whom)
	for i, pid := range []string{"7\n", "12\n"} {
		l.record.Put(t, "sys/fs/cgroup"+l.whom.Pods[0].Containers[i].Cgroup+"/cgroup.procs", pid)
	}
	return l
}

// scan is a tick two seconds after the last, in which the containers have run unless they rest.
func (l *latencies) scan(t *testing.T, rest bool) []string {
	t.Helper()
	if !rest {
		l.ran++
	}
	for _, c := range l.whom.Pods[0].Containers {
		l.record.Put(t, "sys/fs/cgroup"+c.Cgroup+"/cpu.stat", fmt.Sprintf(cpuStat, 50_000_000+l.ran, 0, 0))
	}
	l.rig.now += 2 * unit.Second
	l.rig.scan(t)
	return l.only(sample.MemoryAllocLatency, sample.DiskLatency)
}

// TestLatenciesOfTasks: time for memory is a share of the interval, summed up over the pod's tasks; time for disks is shared by the
// waits. A process that is new counts with all it has, one that is gone with nothing.
func TestLatenciesOfTasks(t *testing.T) {
	t.Parallel()
	l := newLatencies(t)
	alloc, disk := "pod/"+lsUID+" memory_alloc_latency ", "pod/"+lsUID+" disk_latency "
	l.now[7], l.now[12] = taskstats.Delays{Memory: 9e9, Disk: 9e9, DiskWaits: 9}, taskstats.Delays{}
	expect(t, "first", l.scan(t, false))
	expect(t, "calm", l.scan(t, false), alloc+"0")
	l.now[7] = taskstats.Delays{Memory: 10e9, Disk: 9e9 + 30e6, DiskWaits: 12}
	l.now[12] = taskstats.Delays{Memory: 2e9, Disk: 10e6, DiskWaits: 1}
	expect(t, "3 s of two tasks in 2 s; 40 ms in four waits", l.scan(t, false), alloc+"1.5e+06", disk+"10000")
	expect(t, "at rest", l.scan(t, true), alloc+"0")
	delete(l.now, 12)
	l.now[7] = taskstats.Delays{CPU: 5, Disk: 1e6, DiskWaits: 2} // another one under this number
	expect(t, "one gone, one new", l.scan(t, false), alloc+"0", disk+"500")
	l.now[7] = taskstats.Delays{CPU: 6, Disk: 5e5, DiskWaits: 2}
	expect(t, "new again, with as many waits", l.scan(t, false), alloc+"0", disk+"250")
}

// TestLatenciesOfPressure: without delay accounting the worst container's pressure stands in for waits for memory, and the pod's IO
// pressure per request for those for a disk.
func TestLatenciesOfPressure(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12-v2", node.CgroupV2, nil)
	whom := targets(node.CgroupV2)
	whom.Pods = whom.Pods[1:]
	r.Follow(whom)
	const line = "some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
	put := func(cgroup, resource string, total int) {
		r.record.Put(t, "sys/fs/cgroup"+cgroup+"/"+resource+".pressure", fmt.Sprintf(line, total))
	}
	pod := whom.Pods[0]
	first, second := pod.Containers[0].Cgroup, pod.Containers[1].Cgroup
	scan := func() []string {
		r.now += unit.Second
		r.scan(t)
		return r.only(sample.MemoryAllocLatency, sample.DiskLatency)
	}
	for _, c := range []string{pod.Cgroup, first, second} {
		put(c, "memory", 1000)
		put(c, "io", 1000)
	}
	expect(t, "first", scan())
	r.record.Show(t, "6.12-v2+1s") // 100 reads, 20 writes
	put(pod.Cgroup, "memory", 900_000)
	put(pod.Cgroup, "io", 61_000)
	put(first, "memory", 201_000)
	put(second, "memory", 301_000)
	expect(t, "60 ms over 120 requests", scan(), "pod/"+lsUID+" memory_alloc_latency 300000", "pod/"+lsUID+" disk_latency 500")
	put(pod.Cgroup, "io", 90_000)
	put(first, "memory", 211_000)
	expect(t, "no request", scan(), "pod/"+lsUID+" memory_alloc_latency 10000")
	for range 3 {
		expect(t, "at rest, read and not read", scan(), "pod/"+lsUID+" memory_alloc_latency 0")
	}
	put(pod.Cgroup, "memory", 920_000)
	put(first, "memory", 231_000)
	expect(t, "since the last turn", scan(), "pod/"+lsUID+" memory_alloc_latency 20000")
	r.record.Remove(t, "sys/fs/cgroup"+first+"/memory.pressure")
	r.record.Remove(t, "sys/fs/cgroup"+second+"/memory.pressure")
	put(pod.Cgroup, "memory", 950_000)
	expect(t, "no pressure", scan())
}

// TestSupportOfLatencies: what stands in, and why nothing does.
func TestSupportOfLatencies(t *testing.T) {
	t.Parallel()
	off := errors.New("delay accounting is not supported: kernel.task_delayacct is 0")
	const hint = " (set kernel.task_delayacct=1 before containers start, then restart koordlet)"
	for name, c := range map[string]struct {
		m           machine
		alloc, disk support
	}{
		"accounting": {machine{pressure: support{no: "no PSI"}}, support{}, support{}},
		"pressure": {
			machine{waits: off},
			support{less: "memory pressure of the worst container stands in: " + off.Error() + hint},
			support{less: "IO pressure per request stands in: " + off.Error() + hint},
		},
		"some pressure": {
			machine{waits: off, pressure: support{less: "v1"}},
			support{less: "memory pressure of the worst container stands in: " + off.Error() + hint + "; v1"},
			support{less: "IO pressure per request stands in: " + off.Error() + hint + "; v1"},
		},
		"neither": {
			machine{waits: off, pressure: support{no: "no PSI"}},
			support{no: off.Error() + "; memory pressure of the worst container cannot stand in: no PSI"},
			support{no: off.Error() + "; IO pressure per request cannot stand in: no PSI"},
		},
	} {
		a, alloc := newAllocLatency(&c.m)
		d, disk := newDiskLatency(&c.m)
		if diff := cmp.Diff([]support{c.alloc, c.disk}, []support{alloc, disk}, cmp.AllowUnexported(support{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if a.(allocLatencies).tasks != (c.m.waits == nil) || d.(diskLatencies).tasks != (c.m.waits == nil) {
			t.Errorf("%s: %+v, %+v", name, a, d)
		}
	}
}
