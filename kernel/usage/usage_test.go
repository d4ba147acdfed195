// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package usage_test

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
)

const mib = 1 << 20

const (
	podV1 = "/kubepods/burstable/pod1f4e6a70-93f5-4b8e-8a54-0d7e0f1b2002"
	podV2 = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f4e6a70_93f5_4b8e_8a54_0d7e0f1b2002.slice"
	beV2  = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod7712850e_5c1a_4f6e_9be2_37f0c2f3a001.slice/cri-containerd-b1c0de.scope"
)

func open(t *testing.T, r root.Roots, v node.CgroupVersion, path string) *usage.Cgroup {
	t.Helper()
	fs, err := usage.Open(r, v)
	if err != nil {
		t.Fatal(err)
	}
	c, err := fs.Open(path, usage.Everything)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func buffer(t testing.TB) *root.Buffer {
	b := root.Get()
	t.Cleanup(b.Put)
	return b
}

// TestRecorded reads a pod of each recorded machine, then the same one a second later.
func TestRecorded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version     node.CgroupVersion
		path        string
		want, later usage.Counters
		descriptors int
	}{
		"6.18-v1": {node.CgroupV1, podV1, usage.Counters{
			Have: usage.Everything, UsageNS: 534962169, Periods: 12, Throttled: 7, ThrottledNS: 201007529, Current: 34361344,
			Memory: usage.Memory{InactiveAnon: 8204288, InactiveFile: 25255936, ActiveFile: 28672, Cache: 25284608, RefaultFile: 7, MajorFaults: 2},
		}, usage.Counters{
			Have: usage.Everything, UsageNS: 534962169, Periods: 12, Throttled: 7, ThrottledNS: 201007529, Current: 34361344,
			Memory: usage.Memory{InactiveAnon: 8310784, ActiveAnon: 8192, InactiveFile: 25141248, ActiveFile: 114688, Cache: 25255936, RefaultFile: 7, MajorFaults: 2},
		}, 4},
		"6.12-v2": {node.CgroupV2, podV2, usage.Counters{
			Have: usage.Everything, UsageNS: 70e9, Current: 612 * mib,
			Memory: usage.Memory{InactiveAnon: 10 * mib, ActiveAnon: 200 * mib, InactiveFile: 100 * mib, ActiveFile: 300 * mib,
				Unevictable: mib, Cache: 401 * mib, RefaultFile: 11, MajorFaults: 5},
		}, usage.Counters{
			Have: usage.Everything, UsageNS: 72.5e9, Current: 612 * mib,
			Memory: usage.Memory{InactiveAnon: 10 * mib, ActiveAnon: 200 * mib, InactiveFile: 100 * mib, ActiveFile: 300 * mib,
				Unevictable: mib, Cache: 401 * mib, RefaultFile: 51, MajorFaults: 5},
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := kerneltest.Recorded(t, name)
			cg := open(t, r.Roots, c.version, c.path)
			var got usage.Counters
			for _, want := range []usage.Counters{c.want, c.later} {
				if err := cg.Read(buffer(t), usage.Everything, &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
				r.Show(t, name+"+1s")
			}
			if n := cg.Descriptors(); n != c.descriptors {
				t.Errorf("%d descriptors", n)
			}
			if m := got.Memory; m.WithPageCache()-m.WithoutPageCache() != m.ActiveFile+m.InactiveFile {
				t.Errorf("%+v", m)
			}
		})
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	v1, v2 := kerneltest.Recorded(t, "6.18-v1"), kerneltest.Recorded(t, "6.12-v2")
	type tables struct {
		IO        usage.IO
		NUMA      usage.NUMA
		Limits    usage.Limits
		Events    usage.Events
		CPU       psi.Stat
		NoPSI     bool
		PSIIsFile bool
	}
	for name, c := range map[string]struct {
		cg   *usage.Cgroup
		want tables
	}{
		"v1 pod": {open(t, v1.Roots, node.CgroupV1, podV1), tables{
			IO: usage.IO{Devices: []usage.Device{{Major: 254, ReadBytes: 25284608, WriteBytes: 25165824, Reads: 19, Writes: 24}}},
			// 2003 anonymous pages, 6173 of files
			NUMA:   usage.NUMA{Nodes: []usage.NodeMemory{{Anon: 8204288, File: 25284608}}},
			Limits: usage.Limits{CPU: 700, CPUs: 2, Memory: unit.Unlimited}, NoPSI: true,
		}},
		"v1 container with a memory limit": {open(t, v1.Roots, node.CgroupV1, podV1+"/a0f001"), tables{
			IO:     usage.IO{Devices: []usage.Device{{Major: 254, ReadBytes: 25280512, WriteBytes: 25165824, Reads: 18, Writes: 24}}},
			NUMA:   usage.NUMA{Nodes: []usage.NodeMemory{{Anon: 4096, File: 25280512}}},
			Limits: usage.Limits{CPU: unit.Unlimited, CPUs: 2, Memory: 64 * mib}, NoPSI: true,
		}},
		"v2 pod": {open(t, v2.Roots, node.CgroupV2, podV2), tables{
			IO: usage.IO{Devices: []usage.Device{{Major: 259, ReadBytes: 104857600, Reads: 2560}, {Major: 253, ReadBytes: 104857600, Reads: 2560}}},
			NUMA: usage.NUMA{Nodes: []usage.NodeMemory{{Anon: 157.5 * mib, File: 400 * mib, Unevictable: mib},
				{Anon: 52.5 * mib}}},
			Limits: usage.Limits{CPU: unit.Unlimited, CPUs: 8, Memory: 1024 * mib}, PSIIsFile: true,
			CPU: psi.Stat{Some: psi.Line{Avg10: 100, TotalUS: 1e6}, Full: psi.Line{TotalUS: 1e5}, HasFull: true},
		}},
		"v2 BestEffort container": {open(t, v2.Roots, node.CgroupV2, beV2), tables{
			NUMA:   usage.NUMA{Nodes: []usage.NodeMemory{{Anon: 47.25 * mib, File: 24 * mib}, {Anon: 15.75 * mib}}},
			Limits: usage.Limits{CPU: 1500, CPUs: 4, Memory: unit.Unlimited}, Events: usage.Events{High: 3}, PSIIsFile: true,
			CPU: psi.Stat{Some: psi.Line{Avg10: 490, TotalUS: 4.9e6}, Full: psi.Line{TotalUS: 4.9e5}, HasFull: true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got tables
			b := buffer(t)
			err := errors.Join(c.cg.IO(b, &got.IO), c.cg.NUMA(b, &got.NUMA), c.cg.Limits(b, &got.Limits), c.cg.Events(b, &got.Events))
			if err != nil {
				t.Error(err)
			}
			if err := c.cg.Pressure(b, "cpu", &got.CPU); err != nil {
				got.NoPSI = errors.Is(err, usage.ErrNoFile)
			}
			got.PSIIsFile = c.cg.PressureFile("cpu") != ""
			if len(got.IO.Devices) == 0 {
				got.IO.Devices = nil
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if err := c.cg.Idle(b, &usage.Idle{}); !errors.Is(err, usage.ErrNoFile) {
				t.Errorf("kidled: %v", err)
			}
		})
	}
}

// TestGone: a removed cgroup is ErrGone, from a descriptor that is open (ENODEV, on the real kernel below) and from a path.
func TestGone(t *testing.T) {
	t.Parallel()
	r := kerneltest.Recorded(t, "6.12-v2")
	fs, err := usage.Open(r.Roots, node.CgroupV2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Open("/kubepods.slice/none", usage.Everything); !errors.Is(err, usage.ErrGone) || !strings.Contains(err.Error(), "/kubepods.slice/none") {
		t.Errorf("%v", err)
	}
	if _, err := fs.Open("/../etc", usage.Everything); !errors.Is(err, root.ErrOutside) {
		t.Errorf("%v", err)
	}
	none := root.Roots{Cgroup: t.TempDir()}
	if _, err := usage.Open(none, node.CgroupV1); err == nil {
		t.Error("a directory without controllers was taken for cgroup v1")
	}
}

// TestPartial: what cannot be read or parsed costs its own part; what appears later is found.
func TestPartial(t *testing.T) {
	t.Parallel()
	r := kerneltest.Recorded(t, "6.18-v1")
	const stat = "sys/fs/cgroup/memory" + podV1 + "/memory.stat"
	r.Remove(t, stat)
	cg := open(t, r.Roots, node.CgroupV1, podV1)
	b := buffer(t)
	var c usage.Counters
	if err := cg.Read(b, usage.Everything, &c); err != nil || c.Have != usage.Everything&^usage.MemoryDetail || cg.Descriptors() != 3 {
		t.Errorf("without memory.stat: %v, %v, %d descriptors", c.Have, err, cg.Descriptors())
	}
	r.Put(t, stat, "total_inactive_anon x\n")
	err := cg.Read(b, usage.Everything, &c)
	if err == nil || !strings.Contains(err.Error(), podV1+"/memory.stat") || c.Have != usage.Everything&^usage.MemoryDetail || c.UsageNS == 0 {
		t.Errorf("broken memory.stat: %v, %v", c.Have, err)
	}
	r.Show(t, "6.18-v1")
	if err := cg.Read(b, usage.Everything, &c); err != nil || c.Have != usage.Everything {
		t.Errorf("repaired: %v, %v", c.Have, err)
	}
	fs, err := usage.Open(r.Roots, node.CgroupV1)
	if err != nil {
		t.Fatal(err)
	}
	some, err := fs.Open(podV1, usage.CPUTime|usage.MemoryCurrent)
	if err != nil {
		t.Fatal(err)
	}
	defer some.Close()
	if err := some.Read(b, usage.Everything, &c); err != nil || c.Have != usage.CPUTime|usage.MemoryCurrent || some.Descriptors() != 2 {
		t.Errorf("two parts: %v, %v", c.Have, err)
	}
}

// TestReadOfParts: what is not asked for is not read, and stays as it was.
func TestReadOfParts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version node.CgroupVersion
		path    string
		// files to break, and the parts that go on then.
		broken []string
		left   usage.Part
	}{
		"6.18-v1": {
			node.CgroupV1, podV1, []string{"memory" + podV1 + "/memory.stat", "cpu" + podV1 + "/cpu.stat"}, usage.CPUTime | usage.MemoryCurrent,
		},
		"6.12-v2": {node.CgroupV2, podV2, []string{strings.TrimPrefix(podV2, "/") + "/memory.stat"}, usage.CPUTime | usage.MemoryCurrent},
	} {
		r := kerneltest.Recorded(t, name)
		cg, b := open(t, r.Roots, tc.version, tc.path), buffer(t)
		var c usage.Counters
		if err := cg.Read(b, usage.CPUTime, &c); err != nil || !c.Have.Has(usage.CPUTime) || c.Have.Has(usage.MemoryCurrent) || c.Current != 0 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		if err := cg.Read(b, usage.MemoryCurrent|usage.MemoryDetail, &c); err != nil || !c.Have.Has(usage.CPUTime|usage.MemoryCurrent|usage.MemoryDetail) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		before := c
		for _, f := range tc.broken {
			r.Put(t, "sys/fs/cgroup/"+f, "nonsense\n")
		}
		if err := cg.Read(b, tc.left, &c); err != nil || c.Memory != before.Memory || !c.Have.Has(usage.MemoryDetail) {
			t.Errorf("%s: a file that was not asked for: %+v, %v", name, c, err)
		}
		if err := cg.Read(b, usage.MemoryDetail, &c); err == nil || c.Have.Has(usage.MemoryDetail) || c.Current != before.Current {
			t.Errorf("%s: a broken file: %+v, %v", name, c, err)
		}
	}
}

// TestThisHost makes a cgroup on the running kernel, works in it and reads it: the counters grow, nothing is allocated, the
// descriptors are given back, and after its removal it is gone. It counts descriptors and allocations, so it is not parallel.
func TestThisHost(t *testing.T) {
	version, hierarchies := kerneltest.Hierarchies(t)
	path := "/koord-rt-usage-test-" + strconv.Itoa(os.Getpid())
	for _, h := range hierarchies {
		kerneltest.Permitted(t, os.Mkdir(h+path, 0o755), unix.CAP_DAC_OVERRIDE)
		t.Cleanup(func() { unix.Rmdir(h + path) }) //nolint:errcheck // the test has removed it
	}
	before := descriptors(t)
	fs, err := usage.Open(root.Default(), version)
	if err != nil {
		t.Fatal(err)
	}
	cg, err := fs.Open(path, usage.Everything)
	if err != nil {
		t.Fatal(err)
	}
	burn(t, path, hierarchies)
	b := buffer(t)
	var c usage.Counters
	if err := cg.Read(b, usage.Everything, &c); err != nil || !c.Have.Has(expected(t, version)) || c.UsageNS < 1e6 {
		t.Errorf("%+v, %v", c, err)
	}
	if n := testing.AllocsPerRun(100, func() { err = cg.Read(b, usage.Everything, &c) }); n != 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
	checkTables(t, cg, b)
	for _, h := range hierarchies {
		if err := unix.Rmdir(h + path); err != nil {
			t.Fatal(err)
		}
	}
	if err := cg.Read(b, usage.Everything, &c); !errors.Is(err, usage.ErrGone) || !errors.Is(err, unix.ENODEV) || c != (usage.Counters{}) {
		t.Errorf("after removal: %+v, %v", c, err)
	}
	cg.Close()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	if err := cg.Read(b, usage.Everything, &c); !errors.Is(err, usage.ErrGone) {
		t.Errorf("closed and removed: %v", err)
	}
}

// TestProcs: sorted, without foreign ones, no more than asked for, and with those of cgroups below, as systemd in a container has them.
func TestProcs(t *testing.T) {
	t.Parallel()
	r := kerneltest.Recorded(t, "6.12-v2")
	r.Put(t, "sys/fs/cgroup/x/cgroup.procs", "900\n0\n5\n7\n")
	fs, err := usage.Open(r.Roots, node.CgroupV2)
	if err != nil {
		t.Fatal(err)
	}
	cg, err := fs.At("x/")
	if err != nil || cg.Path() != "/x" || cg.Descriptors() != 0 {
		t.Fatal(cg, err)
	}
	b := buffer(t)
	pids := []int{1, 2, 3}
	if err := cg.Procs(b, 2, &pids); err != nil || !slices.Equal(pids, []int{5, 7}) {
		t.Errorf("%v, %v", pids, err)
	}
	r.Put(t, "sys/fs/cgroup/x/cgroup.procs", "")
	r.Put(t, "sys/fs/cgroup/x/init.scope/cgroup.procs", "8\n")
	r.Put(t, "sys/fs/cgroup/x/system.slice/cgroup.procs", "")
	r.Put(t, "sys/fs/cgroup/x/system.slice/cron.service/cgroup.procs", "6\n")
	if err := cg.Procs(b, 3, &pids); err != nil || !slices.Equal(pids, []int{6, 8}) {
		t.Errorf("%v, %v", pids, err)
	}
	r.Put(t, "sys/fs/cgroup/x/cgroup.procs", "900\nx\n")
	if err := cg.Procs(b, 2, &pids); err == nil {
		t.Errorf("a bad line was taken: %v", pids)
	}
	if _, err := fs.At("../x"); !errors.Is(err, root.ErrOutside) {
		t.Errorf("%v", err)
	}
}

// expected are the parts that this host gives a child of the root.
func expected(t *testing.T, v node.CgroupVersion) usage.Part {
	t.Helper()
	if v == node.CgroupV1 {
		return usage.Everything
	}
	on, err := root.Read("/sys/fs/cgroup/cgroup.subtree_control")
	if err != nil {
		t.Fatal(err)
	}
	want := usage.CPUTime
	for controller, part := range map[string]usage.Part{"cpu": usage.CPUThrottle, "memory": usage.MemoryCurrent | usage.MemoryDetail} {
		if slices.Contains(strings.Fields(on), controller) {
			want |= part
		}
	}
	return want
}

// checkTables reads every slower table of the running kernel; each is there or has its reason.
func checkTables(t *testing.T, cg *usage.Cgroup, b *root.Buffer) {
	t.Helper()
	var io usage.IO
	var numa usage.NUMA
	var limits usage.Limits
	var events usage.Events
	for name, err := range map[string]error{
		"io": cg.IO(b, &io), "numa": cg.NUMA(b, &numa), "limits": cg.Limits(b, &limits), "events": cg.Events(b, &events),
		"idle": cg.Idle(b, &usage.Idle{}), "pressure": cg.Pressure(b, "memory", &psi.Stat{}),
	} {
		if err != nil && !errors.Is(err, usage.ErrNoFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if limits.CPU != unit.Unlimited || limits.Memory != unit.Unlimited {
		t.Errorf("a new cgroup has limits %+v", limits)
	}
}

// burn runs a short process in the cgroup.
func burn(t *testing.T, path string, hierarchies []string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "read x; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"}, &os.ProcAttr{Files: []*os.File{r}})
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	for _, h := range hierarchies {
		// A new v1 cpuset takes no process, and none is needed there.
		if err := root.Write(h+path+"/cgroup.procs", strconv.Itoa(p.Pid)); err != nil && !strings.HasSuffix(h, "cpuset") {
			t.Error(err)
		}
	}
	w.Close()
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
}

func descriptors(t *testing.T) int {
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
