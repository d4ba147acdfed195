// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

const cpuStat = "usage_usec %d\nuser_usec 0\nsystem_usec 0\nnr_periods %d\nnr_throttled %d\nthrottled_usec 0\n"

// TestResets: a counter that falls, a reading at the same time and a cgroup made anew give no CPU usage; the tick after does.
func TestResets(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12-v2", node.CgroupV2, nil)
	whom := targets(node.CgroupV2)
	r.Follow(whom)
	pod, dir := sample.OfPod(lsUID), "sys/fs/cgroup"+whom.Pods[1].Cgroup
	show := func(usage, periods, throttled int) {
		r.record.Put(t, dir+"/cpu.stat", fmt.Sprintf(cpuStat, usage, periods, throttled))
	}
	for i, step := range []struct {
		change func()
		after  unit.Micros
		want   float64 // -1 is no sample
		ratio  float64
	}{
		{func() { show(70_000_000, 100, 10) }, unit.Second, -1, -1},
		{func() { show(71_000_000, 110, 15) }, unit.Second, 1, 0.5},
		{func() { show(71_000_000, 110, 15) }, 2 * unit.Second, 0, -1}, // no period: nothing to say
		{func() { show(400_000, 5, 5) }, unit.Second, -1, -1},
		{func() { show(900_000, 10, 5) }, 2 * unit.Second, 0.25, 0},
		{func() { show(950_000, 12, 7) }, 0, -1, -1},
		{func() { show(1_400_000, 20, 10) }, unit.Second, 0.5, 0.5}, // since the reading before
		{func() { r.Follow(Targets{}) }, unit.Second, -1, -1},
		{func() { r.Follow(whom) }, unit.Second, -1, -1},
		{func() { show(3_400_000, 20, 10) }, unit.Second, 2, -1},
	} {
		step.change()
		r.now += step.after
		r.scan(t)
		for m, want := range map[sample.Metric]float64{sample.CPUUsage: step.want, sample.CPUThrottled: step.ratio} {
			if got, ok := r.value(pod, m); ok != (want >= 0) || ok && (got < want-1e-9 || got > want+1e-9) {
				t.Errorf("step %d: %s %v, %v; want %v", i, m, got, ok, want)
			}
		}
	}
}

// TestThrottledTime: how long the quota has stopped a pod is told of the intervals in which it did.
func TestThrottledTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12-v2", node.CgroupV2, nil)
	whom := targets(node.CgroupV2)
	r.Follow(whom)
	pod, file := sample.OfPod(lsUID), "sys/fs/cgroup"+whom.Pods[1].Cgroup+"/cpu.stat"
	for i, step := range []struct {
		usage, stopped int
		want           float64 // µs per second, -1 is no sample
	}{
		{1_000_000, 500_000, -1}, {2_000_000, 700_000, 2e5}, {3_000_000, 700_000, -1}, {4_000_000, 5_700_000, 5e6},
	} {
		text := fmt.Sprintf(cpuStat, step.usage, 100+10*i, 10+i)
		r.record.Put(t, file, strings.Replace(text, "throttled_usec 0", fmt.Sprint("throttled_usec ", step.stopped), 1))
		r.now += unit.Second
		r.scan(t)
		if got, ok := r.value(pod, sample.CPUThrottledTime); ok != (step.want >= 0) || ok && (got < step.want-1 || got > step.want+1) {
			t.Errorf("step %d: %v, %v; want %v", i, got, ok, step.want)
		}
	}
}

// TestWhole: while a pod has been read only once, the sums that it belongs to have no CPU, and the system none; memory they
// have. Before Follow there is only the node.
func TestWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12-v2", node.CgroupV2, nil)
	scan := func() { r.now += unit.Second; r.scan(t) }
	kinds := func() (out []string) {
		for _, s := range r.got {
			if k := s.Subject.Kind.String(); !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
		return out
	}
	scan()
	scan()
	if diff := cmp.Diff([]string{"node", "numa", "disk"}, kinds()); diff != "" {
		t.Errorf("before Follow: %s", diff)
	}
	whom := targets(node.CgroupV2)
	late := whom.Pods[1]
	r.Follow(Targets{Pods: slices.Clone(whom.Pods[:1]), HostApps: whom.HostApps, BestEffort: whom.BestEffort})
	scan()
	scan()
	check := func(what string, s sample.Subject, cpu bool) {
		t.Helper()
		if _, ok := r.value(s, sample.CPUUsage); ok != cpu {
			t.Errorf("%s: %s has CPU: %v", what, s, ok)
		}
		if _, ok := r.value(s, sample.MemoryUsage); !ok {
			t.Errorf("%s: %s has no memory", what, s)
		}
	}
	check("settled", sample.OfSystem(), true)
	check("settled", sample.OfSystemNUMA(1), true)
	whom.Pods = []Pod{whom.Pods[0], late}
	r.Follow(whom)
	scan()
	check("a pod came", sample.OfSystem(), false)
	check("a pod came", sample.OfSystemNUMA(1), false)
	check("a pod came", sample.OfQoS(protocol.QoSLS), false)
	check("a pod came", sample.OfPriority(protocol.PriorityProd), false)
	check("a pod came", sample.OfQoS(protocol.QoSBE), true)
	check("who stayed", sample.OfPod(beUID), true)
	scan()
	check("settled again", sample.OfSystem(), true)
	check("settled again", sample.OfQoS(protocol.QoSLS), true)
	whom.Pods = append(whom.Pods, Pod{UID: "pending", Cgroup: "/kubepods.slice/none", QoS: protocol.QoSLSR})
	r.Follow(whom)
	scan()
	check("a pod without a cgroup came", sample.OfSystem(), true)
	if got := r.Scan(func([]sample.Sample) {}); got.Gone != 1 {
		t.Errorf("%+v", got)
	}
}

// TestSlowIsSpread: each entry is read slowly once in Slow ticks, and about as many in each.
func TestSlowIsSpread(t *testing.T) {
	t.Parallel()
	const slow, pods = 5, 10
	r := newRig(t, "6.12-v2", node.CgroupV2, func(o *Options) { o.Slow = slow })
	like := targets(node.CgroupV2).Pods[1]
	var whom Targets
	for i := range pods {
		like.UID = fmt.Sprint("pod", i)
		like.Containers = []Container{{fmt.Sprint("c", i), like.Cgroup}}
		whom.Pods = append(whom.Pods, like)
	}
	r.Follow(whom)
	seen := map[sample.Subject]int{}
	for range slow {
		r.now += unit.Second
		r.scan(t)
		n := 0
		for _, s := range r.got {
			if s.Metric == sample.PSIIOSome && s.Subject.Kind != sample.Node {
				seen[s.Subject]++
				n++
			}
		}
		if n != 2*pods/slow {
			t.Errorf("%d entries in one tick", n)
		}
	}
	for s, n := range seen {
		if n != 1 {
			t.Errorf("%s was read %d times", s, n)
		}
	}
	if len(seen) != 2*pods {
		t.Errorf("%d entries were read", len(seen))
	}
}

// TestBrokenFiles: one file costs what it tells and is reported with its path; the rest goes on.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.18-v1", node.CgroupV1, nil)
	whom := targets(node.CgroupV1)
	r.Follow(whom)
	r.scan(t)
	// memory.stat comes first: of a cgroup at rest it is not read for ever.
	ofNode := map[string][2]Reading{"proc/stat": {ReadFailed, ReadWell}, "sys/devices/system/node/node0/meminfo": {ReadWell, ReadFailed}}
	for _, file := range []string{"sys/fs/cgroup/memory" + whom.Pods[1].Cgroup + "/memory.stat", "proc/stat", "proc/meminfo", "proc/vmstat",
		"proc/diskstats", "proc/pressure/io", "sys/devices/system/node/node0/meminfo", "proc/1/net/dev"} {
		r.record.Put(t, file, "a\nb\nnonsense\n")
		r.now += unit.Second
		r.got = r.got[:0]
		report := r.Scan(func(s []sample.Sample) { r.got = append(r.got, s...) })
		var name *root.FileError
		if report.Failed != 1 || !strings.Contains(report.Err.Error(), file) {
			t.Errorf("%s: %d failed, %v, %v", file, report.Failed, report.Err, errors.As(report.Err, &name))
		}
		want, ok := ofNode[file]
		if !ok {
			want = [2]Reading{ReadWell, ReadWell}
		}
		if got := [2]Reading{report.CPUs, report.NUMA}; got != want {
			t.Errorf("%s: readings of the node %v, want %v", file, got, want)
		}
		if _, ok := r.value(sample.OfPod(lsUID), sample.CPUUsage); !ok {
			t.Errorf("%s: the pod has no CPU usage", file)
		}
		r.record.Show(t, "6.18-v1")
		r.record.Show(t, "6.18-v1+1s")
		r.now += unit.Second
		r.Scan(func([]sample.Sample) {})
	}
}

// TestSupport: every collector has its line and its reason.
func TestSupport(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.18-v1", node.CgroupV1, func(o *Options) {
		o.Topology, o.Without, o.Slow = nil, []string{"rundelay", "cpi", "pagecache", "rtt"}, 0
	})
	const v1Pressure = "cgroup v1 has pressure of the node, and of those cgroups alone that are also in a unified hierarchy or on an Anolis kernel"
	want := map[string]string{
		"node": "1 active ", "pod": "1 active ", "container": "1 active ", "hostapp": "1 active ", "class": "1 active ", "system": "1 active ",
		"classpsi": "1 degraded cgroup v1 has the pressure of a class only where the runtime keeps containers in a unified hierarchy as well, or on an Anolis kernel",
		"numa":     "10 unsupported the topology is not known", "pagecache": "1 off ",
		"coldpage": "10 unsupported no memory.idle_page_stats: the kernel has no kidled",
		"psi":      "10 degraded " + v1Pressure,
		"rundelay": "10 off ", "reclaim": "10 active ",
		"disk":    "10 degraded cgroup v1 charges buffered writes to the root, not to the cgroup that wrote",
		"network": "10 active ", "resctrl": "10 unsupported no resctrl filesystem at " + r.record.Roots.Resctrl + ": not mounted, or the CPU has no RDT",
		"cpi": "60 off ", "rtt": "10 off ",
		"alloclatency": "10 degraded memory pressure of the worst container stands in: the collector rundelay is off (set kernel.task_delayacct=1 " +
			"before containers start, then restart koordlet); " + v1Pressure,
		"disklatency": "10 degraded IO pressure per request stands in: the collector rundelay is off (set kernel.task_delayacct=1 " +
			"before containers start, then restart koordlet); " + v1Pressure,
	}
	got := map[string]string{}
	for _, s := range r.Support() {
		got[s.Collector] = fmt.Sprintf("%d %s %s", s.Every, s.Support, s.Detail)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := New(Options{Roots: root.Roots{Cgroup: t.TempDir()}, Cgroup: node.CgroupV1}); err == nil {
		t.Error("a directory without cgroups was taken")
	}
	bare := kerneltest.Recorded(t, "6.12-v2")
	bare.Remove(t, "proc/pressure")
	s, err := New(Options{
		Roots: bare.Roots, Cgroup: node.CgroupV2, Now: func() unit.Micros { return 0 }, Without: []string{"rundelay", "rtt"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	i := slices.IndexFunc(s.Support(), func(s State) bool { return s.Collector == "psi" })
	if state := s.Support()[i]; state.Support != StateUnsupported || !strings.Contains(state.Detail, "CONFIG_PSI") {
		t.Errorf("%+v", state)
	}
	// Without pressure nothing stands in for delay accounting, which a recorded tree cannot have.
	for _, s := range s.Support() {
		latency := s.Collector == "alloclatency" || s.Collector == "disklatency"
		if latency && (s.Support != StateUnsupported || !strings.Contains(s.Detail, "rundelay is off") || !strings.Contains(s.Detail, "CONFIG_PSI")) {
			t.Errorf("%+v", s)
		}
	}
}

// TestNUMAWithoutMeminfo: a node whose file is broken has no memory, and the system none on it; the other node and the CPU go on.
func TestNUMAWithoutMeminfo(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12-v2", node.CgroupV2, nil)
	r.Follow(targets(node.CgroupV2))
	r.scan(t)
	r.record.Put(t, "sys/devices/system/node/node1/meminfo", "nonsense")
	r.now += unit.Second
	r.got = r.got[:0]
	if report := r.Scan(func(s []sample.Sample) { r.got = append(r.got, s...) }); report.Failed != 1 {
		t.Errorf("%+v", report)
	}
	for s, want := range map[sample.Subject]bool{
		sample.OfNUMA(0): true, sample.OfSystemNUMA(0): true, sample.OfNUMA(1): false, sample.OfSystemNUMA(1): false,
	} {
		_, memory := r.value(s, sample.MemoryUsage)
		if _, cpu := r.value(s, sample.CPUUsage); memory != want || !cpu {
			t.Errorf("%s has memory: %v, CPU: %v", s, memory, cpu)
		}
	}
}

// TestFreeLists: what is free on lists of the CPUs is nobody's, in any of the three policies, on the machine, on its NUMA nodes and of
// the system; it is read at a slow turn, and where that fails it counts as used.
func TestFreeLists(t *testing.T) {
	t.Parallel()
	bothVersions(t, 2, func(t *testing.T, r *rig, _ Targets) {
		const mib = 1 << 20
		lists := func(count int) {
			r.record.Put(t, "proc/zoneinfo", fmt.Sprintf("Node 0, zone Normal\n  pagesets\n    cpu: 0\n              count:    %d\n", count))
		}
		scan := func() {
			r.now += unit.Second
			r.got = r.got[:0]
			r.Scan(func(s []sample.Sample) { r.got = append(r.got, s...) })
		}
		figures := func() map[string]float64 {
			out := map[string]float64{}
			for _, s := range []sample.Subject{sample.OfNode(), sample.OfSystem(), sample.OfNUMA(0)} {
				for _, m := range []sample.Metric{sample.MemoryUsage, sample.MemoryWithPageCache} {
					if v, ok := r.value(s, m); ok {
						out[fmt.Sprint(s, " ", m)] = v
					}
				}
			}
			return out
		}
		lists(0)
		scan()
		none := figures()
		if len(none) != 5 {
			t.Fatalf("%v", none)
		}
		page := os.Getpagesize()
		for tick, step := range []struct{ written, counted int }{{8, 8}, {16, 8}, {16, 16}, {0, 16}, {-1, 0}} {
			lists(step.written * mib / page)
			if step.written < 0 {
				r.record.Put(t, "proc/zoneinfo", "")
			}
			scan()
			for name, v := range figures() {
				if want := max(none[name]-float64(step.counted*mib), 0); v != want {
					t.Errorf("tick %d, %s: %.0f, want %.0f", tick, name, v, want)
				}
			}
			if got, ok := r.value(sample.OfNode(), sample.MemoryFreeLists); ok != (tick%2 == 0) || ok && got != float64(step.counted*mib) {
				t.Errorf("tick %d: lists %.0f, %v", tick, got, ok)
			}
		}
	})
}
