// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/perf"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/taskstats"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// only prints the samples of some metrics.
func (r *rig) only(metrics ...sample.Metric) []string {
	var out []string
	for _, s := range r.got {
		if slices.Contains(metrics, s.Metric) {
			out = append(out, fmt.Sprintf("%s %s %.6g", s.Subject, s.Metric, s.Value))
		}
	}
	return out
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s:\n%s", what, diff)
	}
}

// TestColdPages: on a kernel with kidled, what is cold is taken off the memory with page cache; between two readings the last one counts.
func TestColdPages(t *testing.T) {
	t.Parallel()
	base := newRig(t, "6.18-v1", node.CgroupV1, nil)
	whom := targets(node.CgroupV1)
	show := func(path string, cold int) {
		base.record.Put(t, "sys/fs/cgroup/memory"+path+"/memory.idle_page_stats",
			fmt.Sprintf("# buckets: 1,2,5,15\n csei 9 9 9 9\n cfei 7 7 %d 0\n dfei 0 0 0 4096\n", cold))
	}
	show("", 1<<20)
	show(whom.Pods[1].Cgroup, 8192)
	r := newRigOn(t, base, func(o *Options) { o.Slow = 2 })
	r.Follow(whom)
	// The second pod and the node are due at even ticks.
	for tick, cold := range []struct{ node, pod float64 }{{-1, -1}, {1<<20 + 4096, 8192 + 4096}, {1<<20 + 4096, 8192 + 4096}, {4096, 4096}} {
		if tick == 2 {
			show("", 0)
			show(whom.Pods[1].Cgroup, 0)
		}
		r.now += unit.Second
		r.scan(t)
		for s, want := range map[sample.Subject]float64{sample.OfNode(): cold.node, sample.OfPod(lsUID): cold.pod} {
			all, _ := r.value(s, sample.MemoryWithPageCache)
			hot, ok := r.value(s, sample.MemoryWithHotPages)
			if ok != (want >= 0) || ok && hot != all-want {
				t.Errorf("tick %d: %s has %v hot of %v, %v", tick, s, hot, all, ok)
			}
			if got, due := r.value(s, sample.MemoryColdPages); due != (tick%2 == 1) || due && got != want {
				t.Errorf("tick %d: %s has %v cold, %v", tick, s, got, due)
			}
		}
	}
	if _, ok := r.value(sample.OfPod(beUID), sample.MemoryWithHotPages); ok {
		t.Error("a pod without the file has hot pages")
	}
}

// TestColdPagesWithoutKidled: while kidled is stopped no page is told hot, and the state says so, from when it is seen.
func TestColdPagesWithoutKidled(t *testing.T) {
	t.Parallel()
	base := newRig(t, "6.18-v1", node.CgroupV1, nil)
	base.record.Put(t, "sys/fs/cgroup/memory/memory.idle_page_stats", "# buckets: 1,2,5,15\n cfei 7 7 4096 0\n")
	period := func(n string) { base.record.Put(t, "sys/kernel/mm/kidled/scan_period_in_seconds", n+"\n") }
	period("0")
	r := newRigOn(t, base, func(o *Options) { o.Slow = 1 })
	for tick, c := range []struct {
		period string
		runs   bool
	}{{"0", false}, {"120", true}, {"0", false}} {
		period(c.period)
		r.now += unit.Second
		r.scan(t)
		_, hot := r.value(sample.OfNode(), sample.MemoryWithHotPages)
		_, cold := r.value(sample.OfNode(), sample.MemoryColdPages)
		if hot != c.runs || cold != c.runs {
			t.Errorf("tick %d: told hot %v, cold %v", tick, hot, cold)
		}
		states := r.Support()
		i := slices.IndexFunc(states, func(s State) bool { return s.Collector == "coldpage" })
		if s := states[i]; c.runs != (s.Support == StateActive) || !c.runs && !strings.HasPrefix(s.Detail, "kidled is stopped") {
			t.Errorf("tick %d: %+v", tick, s)
		}
	}
}

// newRigOn makes another scanner on the record of a rig.
func newRigOn(t *testing.T, from *rig, change func(*Options)) *rig {
	t.Helper()
	r := &rig{record: from.record, now: from.now}
	o := Options{Roots: from.record.Roots, Cgroup: from.opts.Cgroup, Topology: from.opts.Topology, Slow: 1,
		Now: func() unit.Micros { return r.now }, Without: from.opts.Without}
	if change != nil {
		change(&o)
	}
	var err error
	if r.Scanner, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// counters puts a resctrl into a recorded tree, whose hardware counts, and gives what sets the counters of a group: its path with a slash at the
// end, "" for the root group.
func counters(t *testing.T, record *kerneltest.Record) (count func(group string, domain, occupancy int, total, local string)) {
	t.Helper()
	const dir = "sys/fs/resctrl/"
	for file, content := range map[string]string{
		"schemata": "L3:0=fffff;1=fffff\n", "info/L3/cbm_mask": "fffff\n", "info/L3/min_cbm_bits": "1\n", "info/L3/num_closids": "16\n",
		"info/L3/shareable_bits": "0\n", "info/L3_MON/num_rmids": "176\n", "info/L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n",
	} {
		record.Put(t, dir+file, content)
	}
	return func(group string, domain, occupancy int, total, local string) {
		at := fmt.Sprintf("%s%smon_data/mon_L3_%02d/", dir, group, domain)
		record.Put(t, at+"llc_occupancy", fmt.Sprintln(occupancy))
		record.Put(t, at+"mbm_total_bytes", total+"\n")
		record.Put(t, at+"mbm_local_bytes", local+"\n")
	}
}

// TestResctrl: occupancy as it is, bandwidth as growth; a counter that is unavailable, and a group that is new, have none.
func TestResctrl(t *testing.T) {
	t.Parallel()
	base := newRig(t, "6.12-v2", node.CgroupV2, nil)
	count := counters(t, base.record)
	r := newRigOn(t, base, nil)
	metrics := []sample.Metric{sample.LLCOccupancy, sample.MemoryBandwidthTotal, sample.MemoryBandwidthLocal}
	count("", 0, 4096, "1000", "100")
	count("BE/", 0, 100, "5000", "Unavailable")
	count("BE/", 1, 200, "0", "0")
	r.scan(t)
	expect(t, "first", r.only(metrics...), "llc//0 llc 4096", "llc/BE/0 llc 100", "llc/BE/1 llc 200")
	count("", 0, 8192, "3000", "Error")
	count("BE/", 0, 300, "Unavailable", "10")
	count("BE/", 1, 400, "1000000", "500000")
	count("LS/", 0, 500, "7", "7")
	r.now += 2 * unit.Second
	r.scan(t)
	expect(t, "second", r.only(metrics...), "llc//0 llc 8192", "llc//0 mb_total 1000", "llc/BE/0 llc 300",
		"llc/BE/1 llc 400", "llc/BE/1 mb_total 500000", "llc/BE/1 mb_local 250000", "llc/LS/0 llc 500")
	count("BE/", 0, 300, "9000", "20")
	base.record.Remove(t, "sys/fs/resctrl/LS")
	r.now += 2 * unit.Second
	r.scan(t)
	// 4000 bytes since the last reading that was one, four seconds ago.
	expect(t, "third", r.only(metrics...), "llc//0 llc 8192", "llc//0 mb_total 0", "llc/BE/0 llc 300", "llc/BE/0 mb_total 1000", "llc/BE/0 mb_local 5",
		"llc/BE/1 llc 400", "llc/BE/1 mb_total 0", "llc/BE/1 mb_local 0")
}

// TestNetwork: the node's traffic is that of its hardware; an interface that comes is no jump.
func TestNetwork(t *testing.T) {
	t.Parallel()
	base := newRig(t, "6.12-v2", node.CgroupV2, nil)
	nic := func(name string, in, out int) {
		base.record.Put(t, "sys/class/net/"+name+"/device/vendor", "0x15b3\n")
		base.record.Put(t, "sys/class/net/"+name+"/statistics/rx_bytes", fmt.Sprintln(in))
		base.record.Put(t, "sys/class/net/"+name+"/statistics/tx_bytes", fmt.Sprintln(out))
	}
	r := newRigOn(t, base, nil)
	lists := 0
	scan := func() []string {
		r.now += unit.Second
		if r.scan(t).Disks == ReadWell {
			lists++ // disks and interfaces are listed together
		}
		return r.only(sample.NetworkReceive, sample.NetworkTransmit)
	}
	nic("eth0", 1000, 2000)
	base.record.Put(t, "sys/class/net/veth1/statistics/rx_bytes", "5\n")
	expect(t, "first", scan())
	nic("eth0", 1500, 2100)
	nic("eth1", 1<<40, 1<<40)
	expect(t, "second", scan(), "node network_receive 500", "node network_transmit 100")
	for range listEvery - 2 {
		scan()
	}
	nic("eth0", 1501, 2102)
	expect(t, "listed anew", scan(), "node network_receive 1", "node network_transmit 2")
	nic("eth1", 1<<40+7, 1<<40)
	expect(t, "eth1 counts", scan(), "node network_receive 7", "node network_transmit 0")
	base.record.Remove(t, "sys/class/net/eth1")
	for range listEvery - 1 {
		scan()
	}
	expect(t, "eth1 is gone", scan(), "node network_receive 0", "node network_transmit 0")
	if lists != 3 {
		t.Errorf("disks were listed %d times", lists)
	}
}

// TestRunDelay: processes that stay, begin, end and come back under an old id.
func TestRunDelay(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12-v2", node.CgroupV2, nil)
	whom := targets(node.CgroupV2)
	whom.Pods = whom.Pods[1:]
	waited := map[int]uint64{}
	asked := 0
	c := &runDelays{stop: func() {}, ask: func(_ *root.Buffer, pid int) (taskstats.Delays, error) {
		asked++
		ns, ok := waited[pid]
		if !ok {
			return taskstats.Delays{}, fmt.Errorf("ask: %w", unix.ESRCH)
		}
		return taskstats.Delays{CPU: ns}, nil
	}}
	r.running = append(r.running, running{c})
	r.Follow(whom)
	put := func(i int, pids string) {
		r.record.Put(t, "sys/fs/cgroup"+whom.Pods[0].Containers[i].Cgroup+"/cgroup.procs", pids)
	}
	ran := 0
	scan := func() []string {
		ran++
		for _, c := range whom.Pods[0].Containers {
			r.record.Put(t, "sys/fs/cgroup"+c.Cgroup+"/cpu.stat", fmt.Sprintf(cpuStat, 50_000_000+ran, 0, 0))
		}
		r.now += 2 * unit.Second
		r.scan(t)
		return r.only(sample.RunQueueDelay)
	}
	put(0, "12\n7\n")
	put(1, "")
	waited[7], waited[12] = 1_000_000, 5_000_000
	expect(t, "first", scan())
	waited[7], waited[12] = 5_000_000, 5_000_000
	lines := []string{"container/a0f001 cpu_run_queue_delay 2000", "container/a0f002 cpu_run_queue_delay 0", "pod/" + lsUID + " cpu_run_queue_delay 2000"}
	expect(t, "4 ms in 2 s", scan(), lines...)
	put(0, "12\n30\n") // 7 ended, 30 began
	put(1, "7\n")      // another one
	waited[7], waited[12], waited[30] = 2_000_000, 9_000_000, 4_000_000
	lines = []string{"container/a0f001 cpu_run_queue_delay 4000", "container/a0f002 cpu_run_queue_delay 1000", "pod/" + lsUID + " cpu_run_queue_delay 5000"}
	expect(t, "comings and goings", scan(), lines...)
	delete(waited, 12)     // ended after it was listed
	waited[30] = 1_000_000 // its id was used again
	lines = []string{"container/a0f001 cpu_run_queue_delay 500", "container/a0f002 cpu_run_queue_delay 0", "pod/" + lsUID + " cpu_run_queue_delay 500"}
	expect(t, "ended, reused", scan(), lines...)
	// Who has not run waits no more than before: nobody is asked.
	asked = 0
	r.now += 2 * unit.Second
	r.scan(t)
	lines[0] = "container/a0f001 cpu_run_queue_delay 0"
	lines[2] = "pod/" + lsUID + " cpu_run_queue_delay 0"
	expect(t, "at rest", r.only(sample.RunQueueDelay), lines...)
	if asked != 0 {
		t.Errorf("%d processes at rest were asked", asked)
	}
	waited[30] = 4_000_000
	lines[0], lines[2] = "container/a0f001 cpu_run_queue_delay 1500", "pod/"+lsUID+" cpu_run_queue_delay 1500"
	expect(t, "awake again", scan(), lines...)
	r.Follow(Targets{})
	r.scan(t)
	if len(c.of.m) != 0 {
		t.Errorf("%d containers are remembered", len(c.of.m))
	}
}

// fakeCounter gives what it is told to.
type fakeCounter struct {
	counts perf.Counts
	err    error
	closed *int
}

func (f *fakeCounter) Read() (perf.Counts, error) { return f.counts, f.err }
func (f *fakeCounter) Close()                     { *f.closed++ }

// TestCPI: with descriptors for one container at a time, each is counted for two ticks in its turn, and again after twelve.
func TestCPI(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12-v2", node.CgroupV2, nil)
	whom := targets(node.CgroupV2)
	opened, closed := []string{}, 0
	c := &cpis{cpus: []int{0, 1}, every: 12, window: 2, gone: map[*entry]bool{}}
	c.count = func(path string, cpus []int) (counter, error) {
		id := path[len(path)-len("a0f001.scope") : len(path)-len(".scope")]
		opened = append(opened, id)
		counts := map[string]*fakeCounter{
			"b1c0de": {counts: perf.Counts{Cycles: 3e9, Instructions: 1e9, EnabledNS: 1, RunningNS: 1}},
			"a0f001": {err: perf.ErrNotCounted},
			"a0f002": {counts: perf.Counts{}},
		}[id]
		counts.closed = &closed
		return counts, nil
	}
	if _, can := c.sized(3); can.no == "" {
		t.Error("three descriptors are enough for two CPUs")
	}
	if _, can := c.sized(7); can.no != "" || c.atOnce != 1 {
		t.Errorf("%+v, %d at once", can, c.atOnce)
	}
	r.running = append(r.running, running{c})
	r.Follow(whom)
	scan := func() []string {
		r.now += unit.Second
		r.scan(t)
		return r.only(sample.Cycles, sample.Instructions)
	}
	expect(t, "first tick", scan())
	expect(t, "second tick", scan())
	expect(t, "window over", scan(), "container/b1c0de cpi_cycles 3e+09", "container/b1c0de cpi_instructions 1e+09")
	for range 9 {
		expect(t, "others have nothing", scan())
	}
	if want := []string{"b1c0de", "a0f001", "a0f002"}; !slices.Equal(opened, want) || closed != 3 {
		t.Errorf("counted %v, closed %d", opened, closed)
	}
	expect(t, "next round", scan())
	if len(opened) != 4 || closed != 3 {
		t.Errorf("counted %v, closed %d", opened, closed)
	}
	r.Follow(Targets{Pods: whom.Pods[1:]})
	r.scan(t)
	if closed != 4 {
		t.Errorf("closed %d after the container went", closed)
	}
	c.count = func(string, []int) (counter, error) { return nil, fmt.Errorf("count: %w", unix.ENOENT) }
	expect(t, "a container that just went", scan())
	c.count = func(string, []int) (counter, error) { return nil, errors.New("too bad") }
	c.begun, c.queue = 0, nil
	if report := r.Scan(func([]sample.Sample) {}); report.Failed == 0 {
		t.Error("an error was lost")
	}
}

// TestPressureOfUnified: on a hybrid node a pod that is also in the unified hierarchy has pressure; one that is not costs one look.
func TestPressureOfUnified(t *testing.T) {
	t.Parallel()
	base := newRig(t, "6.18-v1", node.CgroupV1, nil)
	whom := targets(node.CgroupV1)
	for _, f := range []string{"cpu", "memory", "io"} {
		base.record.Put(t, "sys/fs/cgroup/unified"+whom.Pods[0].Cgroup+"/"+f+".pressure", "some avg10=50.00 avg60=0.00 avg300=0.00 total=1\n")
	}
	r := newRigOn(t, base, nil)
	r.Follow(whom)
	r.scan(t)
	got := slices.DeleteFunc(r.only(sample.PSICPUSome, sample.PSICPUFull, sample.PSIIOSome), func(s string) bool { return s[:4] == "node" })
	expect(t, "unified", got, "pod/"+beUID+" psi_cpu_some_avg10 0.5", "pod/"+beUID+" psi_io_some_avg10 0.5")
}
