// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// hostTree is a tree of cgroups of our own on the running kernel, in every hierarchy that is read.
type hostTree struct {
	version     node.CgroupVersion
	hierarchies []string
	top         string
}

// newHostTree makes the top, which goes with all that is below it when the test ends.
func newHostTree(t testing.TB) *hostTree {
	t.Helper()
	h := &hostTree{top: "/koord-rt-collect-" + strconv.Itoa(os.Getpid())}
	h.version, h.hierarchies = kerneltest.Hierarchies(t)
	t.Cleanup(func() { h.remove(t, "") })
	for _, dir := range h.hierarchies {
		kerneltest.Permitted(t, os.Mkdir(dir+h.top, 0o755), unix.CAP_DAC_OVERRIDE)
	}
	return h
}

// mkdir makes a cgroup that has every file, which on v2 its parent has to hand down.
func (h *hostTree) mkdir(t testing.TB, path string) string {
	t.Helper()
	for _, dir := range h.hierarchies {
		if h.version == node.CgroupV2 {
			handDown(t, filepath.Dir(dir+h.top+path))
		}
		if err := os.MkdirAll(dir+h.top+path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return h.top + path
}

// handDown gives the children of a cgroup v2 every controller that it has itself.
func handDown(t testing.TB, dir string) {
	t.Helper()
	have, err := root.Read(dir + "/cgroup.controllers")
	if err != nil {
		t.Fatal(err)
	}
	for controller := range strings.FieldsSeq(have) {
		if err := root.Write(dir+"/cgroup.subtree_control", "+"+controller); err != nil {
			t.Fatal(err)
		}
	}
}

// remove removes a cgroup with all below it, the deepest first.
func (h *hostTree) remove(t testing.TB, path string) {
	t.Helper()
	for _, dir := range h.hierarchies {
		var all []string
		err := filepath.WalkDir(dir+h.top+path, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, p)
			}
			return err
		})
		for i := len(all) - 1; i >= 0 && err == nil; i-- {
			err = unix.Rmdir(all[i])
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("remove %s%s: %v", h.top, path, err)
		}
	}
}

// pods makes pods with containers.
func (h *hostTree) pods(t testing.TB, pods, containers int) Targets {
	t.Helper()
	out := Targets{BestEffort: h.mkdir(t, "/besteffort")}
	for i := range pods {
		p := Pod{UID: fmt.Sprintf("%08d-5c1a-4f6e-9be2-37f0c2f3a001", i), QoS: protocol.QoSLS, Priority: protocol.PriorityProd}
		p.Cgroup = h.mkdir(t, "/pod"+p.UID)
		for j := range containers {
			id := fmt.Sprintf("%032d%032d", i, j)
			p.Containers = append(p.Containers, Container{id, h.mkdir(t, "/pod"+p.UID+"/"+id)})
		}
		out.Pods = append(out.Pods, p)
	}
	return out
}

func (h *hostTree) scanner(t testing.TB, change func(*Options)) *Scanner {
	t.Helper()
	topology, err := sys.FS("/sys").Topology()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Roots: root.Default(), Cgroup: h.version, Topology: topology, Now: BootClock()}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func descriptors(t testing.TB) int {
	t.Helper()
	// The Go runtime's poller opens two of its own with the first pipe: that is behind us then.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// run keeps a process in the cgroup that waits for its input's end.
func (h *hostTree) run(t *testing.T, path, script string) (pid int, stop func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", script}, &os.ProcAttr{Files: []*os.File{r, nil, nil}})
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	stop = func() {
		w.Close()
		p.Kill() //nolint:errcheck // Wait tells
		p.Wait() //nolint:errcheck // it was killed
	}
	for _, dir := range h.hierarchies {
		// A new v1 cpuset takes no process, and none is needed there.
		if err := root.Write(dir+path+"/cgroup.procs", strconv.Itoa(p.Pid)); err != nil && filepath.Base(dir) != "cpuset" {
			stop()
			t.Fatal(err)
		}
	}
	return p.Pid, stop
}

// TestThisHost follows real pods: a container that spins shows in every metric of CPU, descriptors are at most four for a cgroup, those
// of a pod that goes are given back, and so is everything at the end. It counts descriptors, so it is not parallel.
func TestThisHost(t *testing.T) {
	h := newHostTree(t)
	before := descriptors(t)
	s := h.scanner(t, func(o *Options) { o.Slow = 1 })
	s.Scan(func([]sample.Sample) {}) // opens what there is of the machine
	own := descriptors(t)
	targets := h.pods(t, 3, 2)
	busy := targets.Pods[0].Containers[1]
	pid, stop := h.run(t, busy.Cgroup, "while :; do :; done")
	defer stop()
	targets.Pods[0].PID = pid
	s.Follow(targets)
	var got []sample.Sample
	scan := func() Report {
		got = got[:0]
		r := s.Scan(func(b []sample.Sample) { got = append(got, b...) })
		if r.Err != nil {
			t.Errorf("%d failed: %v", r.Failed, r.Err)
		}
		return r
	}
	value := func(s sample.Subject, m sample.Metric) float64 {
		for _, x := range got {
			if x.Subject == s && x.Metric == m {
				return x.Value
			}
		}
		return -1
	}
	if r := scan(); r.Cgroups != 9 || r.Gone != 0 {
		t.Errorf("%+v", r)
	}
	held := descriptors(t)
	if held > own+9*4+2+3 || held < own+9 { // and CPU and charge of the class, the process with its pipe, and the pressure of the class
		t.Errorf("%d descriptors for 9 cgroups", held-own)
	}
	// The clock of CPU time is the process's: scan until it has run.
	for value(sample.OfContainer(busy.ID), sample.CPUUsage) <= 0 {
		scan()
	}
	if pod := value(sample.OfPod(targets.Pods[0].UID), sample.CPUUsage); pod < 0 {
		t.Error("the pod has no CPU usage")
	}
	if idle := value(sample.OfPod(targets.Pods[1].UID), sample.CPUUsage); idle != 0 {
		t.Errorf("a pod without processes uses %v", idle)
	}
	if node := value(sample.OfNode(), sample.MemoryUsage); node < 16<<20 {
		t.Errorf("the node uses %v", node)
	}
	for _, state := range s.Support() {
		if (state.Support == StateActive) != (state.Detail == "") || state.Every < 1 {
			t.Errorf("%+v", state)
		}
	}
	stop()
	h.remove(t, "/pod"+targets.Pods[0].UID)
	if r := scan(); r.Gone != 3 || r.Cgroups != 6 {
		t.Errorf("after a pod's end: %+v", r)
	}
	if n := descriptors(t); n >= held {
		t.Errorf("%d descriptors after a pod's end, %d before", n, held)
	}
	targets.Pods = targets.Pods[1:2]
	s.Follow(targets)
	if r := scan(); r.Gone != 0 || r.Cgroups != 3 {
		t.Errorf("after Follow: %+v", r)
	}
	s.Close()
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors at the end, %d at the beginning", n, before)
	}
}

// TestGoneAtRest: a container that was removed while nothing in its pod ran is noticed at its slow turn.
func TestGoneAtRest(t *testing.T) {
	h := newHostTree(t)
	s := h.scanner(t, func(o *Options) { o.Slow = 4 })
	targets := h.pods(t, 1, 2)
	s.Follow(targets)
	scan := func(ticks int) (gone, spared int) {
		for range ticks {
			r := s.Scan(func([]sample.Sample) {})
			if r.Err != nil {
				t.Errorf("%d failed: %v", r.Failed, r.Err)
			}
			gone, spared = gone+r.Gone, spared+r.Spared
		}
		return gone, spared
	}
	if gone, spared := scan(8); gone != 0 || spared == 0 {
		t.Errorf("%d gone, %d spared", gone, spared)
	}
	h.remove(t, strings.TrimPrefix(targets.Pods[0].Containers[0].Cgroup, h.top))
	if gone, _ := scan(4); gone == 0 {
		t.Error("nobody has noticed")
	}
}

// TestSteadyScansDoNotAllocate: with slow readings and all, whatever the number of containers. It counts allocations, so it is not
// parallel.
func TestSteadyScansDoNotAllocate(t *testing.T) {
	h := newHostTree(t)
	// resctrl and CPI allocate a little for each group and window, where the hardware has them.
	s := h.scanner(t, func(o *Options) { o.Slow, o.Without = 2, []string{"resctrl", "cpi"} })
	targets := h.pods(t, 8, 3)
	_, stop := h.run(t, targets.Pods[0].Containers[0].Cgroup, "read x")
	defer stop()
	s.Follow(targets)
	samples := 0
	sink := func(b []sample.Sample) { samples += len(b) }
	var report Report
	for range 8 {
		report = s.Scan(sink)
	}
	// The lists of disks and interfaces are made anew at one tick in Slow·listEvery, which is not among these.
	n := testing.AllocsPerRun(2, func() { report = s.Scan(sink) })
	if n > 0 || report.Err != nil || report.Cgroups != 32 || samples == 0 {
		t.Errorf("%v allocations, %d samples, %+v", n, samples, report)
	}
}

// The size of the benchmarks: 80 pods with three containers each.
const (
	benchPods       = 80
	benchContainers = 3
)

// BenchmarkScan is a steady tick over real cgroups, everything on.
func BenchmarkScan(b *testing.B) {
	h := newHostTree(b)
	s := h.scanner(b, nil)
	s.Follow(h.pods(b, benchPods, benchContainers))
	samples := 0
	sink := func(batch []sample.Sample) { samples += len(batch) }
	for range 2 * defaultSlow {
		s.Scan(sink)
	}
	samples = 0
	b.ReportAllocs()
	used := cpuTime(b)
	for b.Loop() {
		if r := s.Scan(sink); r.Err != nil || r.Gone != 0 {
			b.Fatalf("%+v", r)
		}
	}
	used(b)
	b.ReportMetric(float64(samples)/float64(b.N), "samples/op")
}

// cpuTime reports what the thread used from here on: on a busy machine the clock on the wall says little.
func cpuTime(b *testing.B) (report func(*testing.B)) {
	b.Helper()
	runtime.LockOSThread()
	now := func() (us int64) {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			b.Fatal(err)
		}
		return (u.Utime.Nano() + u.Stime.Nano()) / 1000
	}
	start := now()
	return func(b *testing.B) {
		b.ReportMetric(float64(now()-start)/float64(b.N), "cpu-us/op")
		runtime.UnlockOSThread()
	}
}

// BenchmarkFloor is what no reader can go below: the files of 240 containers with open descriptors and pread, nothing parsed.
func BenchmarkFloor(b *testing.B) {
	h := newHostTree(b)
	files := []string{"cpuacct/cpuacct.usage", "cpu/cpu.stat", "memory/memory.usage_in_bytes", "memory/memory.stat"}
	if h.version == node.CgroupV2 {
		files = []string{"cpu.stat", "memory.current", "memory.stat"}
	}
	var fds []int
	for _, p := range h.pods(b, benchPods, benchContainers).Pods {
		for _, c := range p.Containers {
			for _, f := range files {
				controller, name, v1 := "", f, h.version == node.CgroupV1
				if v1 {
					controller, name = "/"+filepath.Dir(f), filepath.Base(f)
				}
				fd, err := unix.Open("/sys/fs/cgroup"+controller+c.Cgroup+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					b.Fatal(err)
				}
				fds = append(fds, fd)
			}
		}
	}
	defer func() {
		for _, fd := range fds {
			unix.Close(fd) //nolint:errcheck // read only
		}
	}()
	buf := make([]byte, 8192)
	used := cpuTime(b)
	for b.Loop() {
		for _, fd := range fds {
			if n, err := unix.Pread(fd, buf, 0); err != nil || n == 0 {
				b.Fatal(n, err)
			}
		}
	}
	used(b)
}

// It counts allocations, so it is not parallel.
func TestBootClock(t *testing.T) {
	now := BootClock()
	a := now()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		t.Fatal(err)
	}
	b := now()
	if a <= 0 || b < a || unix.TimespecToNsec(ts)/1000 < int64(a) || b > a+unit.Minute {
		t.Errorf("%d, then %d", a, b)
	}
	if n := testing.AllocsPerRun(10, func() { now() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	// Pressure is told by a goroutine of its own.
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for last := now(); last < a+100*unit.Millisecond; {
				next := now()
				if next < last {
					t.Errorf("%d after %d", next, last)
				}
				last = next
			}
		})
	}
	others.Wait()
}
