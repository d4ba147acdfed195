// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/unit"
)

// machine is every table of one reading.
type machine struct {
	Stat  Stat
	Mem   Meminfo
	VM    VMStat
	Disks DiskStats
	Net   NetDev
}

func read(t *testing.T, fs FS) machine {
	t.Helper()
	b := root.Get()
	defer b.Put()
	var m machine
	errs := []error{readOnce(fs.StatFile, b, &m.Stat), readOnce(fs.MeminfoFile, b, &m.Mem), readOnce(fs.VMStatFile, b, &m.VM),
		readOnce(fs.DiskStatsFile, b, &m.Disks), fs.NetDev(b, 1, &m.Net)}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return m
}

func readOnce[T any](open func() (*root.File[T], error), b *root.Buffer, out *T) error {
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Read(b, out)
}

func TestRecordedMachines(t *testing.T) {
	t.Parallel()
	v2 := kerneltest.Recorded(t, "6.12-v2")
	got := read(t, FS(v2.Roots.Proc))
	if n := len(got.Stat.CPU); n != 8 || got.Stat.CPU[3].User != 4000 || got.Stat.CPU[3].Busy() != 4000+10+200+20 {
		t.Errorf("%d CPUs, %+v", n, got.Stat)
	}
	var sum CPUTimes
	for _, c := range got.Stat.CPU {
		sum.User += c.User
		sum.Idle += c.Idle
	}
	if got.Stat.Total.User != sum.User || got.Stat.Total.Idle != sum.Idle {
		t.Errorf("%+v", got.Stat)
	}
	got.Stat = Stat{}
	want := machine{
		Mem: Meminfo{Total: 32 << 30, Free: 20 << 30, Available: 28 << 30, Cached: 8 << 30},
		VM:  VMStat{AllocStall: 15},
		Disks: DiskStats{[]Disk{
			{259, 0, "nvme0n1", 179128, 4821730 * 512, 432476, 249879, 22917152 * 512, 302238},
			{259, 1, "nvme0n1p1", 170000, 4821730 * 512, 432476, 249879, 22917152 * 512, 302238},
			{253, 0, "dm-0", 179128, 4821730 * 512, 432476, 249879, 22917152 * 512, 302238},
			{Major: 7, Name: "loop0"},
		}},
		Net: NetDev{[]Interface{{"lo", 5000, 5000}, {"eth0", 106032760, 396221}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if rx, tx := got.Net.Traffic(); rx != 106032760 || tx != 396221 {
		t.Errorf("traffic %d, %d", rx, tx)
	}
	if got.Mem.Used(0) != 4<<30 || got.Mem.UsedWithPageCache(0) != 12<<30 || got.Mem.Used(1<<30) != 3<<30 || got.Mem.UsedWithPageCache(1<<30) != 11<<30 || got.Mem.Used(5<<30) != 0 {
		t.Errorf("used %d, %d", got.Mem.Used(0), got.Mem.UsedWithPageCache(0))
	}
	v1 := read(t, FS(kerneltest.Recorded(t, "6.18-v1").Roots.Proc))
	if len(v1.Stat.CPU) != 2 || v1.Mem.Total != 24684096<<10 || len(v1.Disks.Disks) != 10 || len(v1.Net.Interfaces) != 4 || v1.VM.AllocStall != 0 {
		t.Errorf("%+v", v1)
	}
}

// TestFilesSeeWhatIsNew: the open file of a record that changes.
func TestFilesSeeWhatIsNew(t *testing.T) {
	t.Parallel()
	r := kerneltest.Recorded(t, "6.12-v2")
	f, err := FS(r.Roots.Proc).StatFile()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := root.Get()
	defer b.Put()
	var one, two Stat
	if err := f.Read(b, &one); err != nil {
		t.Fatal(err)
	}
	r.Show(t, "6.12-v2+1s")
	if err := f.Read(b, &two); err != nil {
		t.Fatal(err)
	}
	// Four CPUs with 75 ticks and four with 65.
	if got := two.Total.Busy() - one.Total.Busy(); got != 560 {
		t.Errorf("%d ticks", got)
	}
	r.Put(t, "proc/stat", "nonsense")
	var file *root.FileError
	if err := f.Read(b, &two); !errors.As(err, &file) || file.Op != "parse" || !strings.HasSuffix(file.Path, "proc/stat") {
		t.Errorf("%v", err)
	}
}

func TestParseRefusals(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"empty": "", "few columns": "cpu 1 2 3 4 5 6\n", "text": "cpu 1 2 3 4 5 6 x 8\n", "CPU without number": "cpu 1 2 3 4 5 6 7\ncpux 1 2 3 4 5 6 7\n",
		"CPU beyond any kernel": "cpu 1 2 3 4 5 6 7\ncpu9999 1 2 3 4 5 6 7\n",
	} {
		if err := parseStat([]byte(in), &Stat{}); err == nil {
			t.Errorf("stat %s was taken", name)
		}
	}
	for _, in := range []string{"", "MemFree: 1 kB\n", "MemTotal: lots\n", "MemTotal: 9223372036854775807 kB\n"} {
		before := Meminfo{Total: 5}
		if err := parseMeminfo([]byte(in), &before); err == nil || before.Total != 5 {
			t.Errorf("meminfo %q: %+v, %v", in, before, err)
		}
	}
	for _, in := range []string{"", "foo 1\n", "allocstall_normal x\n", "allocstall_dma 1\nallocstall_normal\n"} {
		if err := parseVMStat([]byte(in), &VMStat{}); err == nil {
			t.Errorf("vmstat %q was taken", in)
		}
	}
	for _, in := range []string{"", "Node 0, zone DMA\n", "count: x\n", "count: 1\ncount:\n", "count: 1099511627777\n"} {
		if err := parseZoneInfo([]byte(in), &ZoneInfo{}); err == nil {
			t.Errorf("zoneinfo %q was taken", in)
		}
	}
	for _, in := range []string{"a\nb\nno colon", "a\nb\neth0: 1 2 3"} {
		if err := parseNetDev([]byte(in), &NetDev{}); err == nil {
			t.Errorf("net/dev %q was taken", in)
		}
	}
	for _, in := range []string{"8 0", "8 0 sda 1 2 3", "8 x sda 1 2 3 4 5 6 7 8 9 10", "8 0 sda 1 2 99999999999999999999 4 5 6 7 8 9 10",
		"8 0 sda 1 2 9999999999999999999 4 5 6 7 8 9 10"} {
		if err := parseDiskStats([]byte(in), &DiskStats{}); err == nil {
			t.Errorf("diskstats %q was taken", in)
		}
	}
	for _, in := range []string{"", "1", "1 x"} {
		if err := parseThreadSchedStat([]byte(in), &SchedStat{}); err == nil {
			t.Errorf("thread schedstat %q was taken", in)
		}
	}
	for _, in := range []string{"", "version 17\n", "cpu0 1 2 3\n"} {
		if err := parseSchedStat([]byte(in), &CPUSchedStat{}); err == nil {
			t.Errorf("schedstat %q was taken", in)
		}
	}
}

func TestParseSchedStat(t *testing.T) {
	t.Parallel()
	var cpu CPUSchedStat
	text := "version 17\ntimestamp 4295\ncpu0 0 0 0 0 0 0 61243554321 9912004312 812342\ndomain0 MC 3 1 2\ncpu1 0 0 0 0 0 0 1 88 3\n"
	if err := parseSchedStat([]byte(text), &cpu); err != nil || cpu.WaitNS != 9912004312+88 {
		t.Errorf("%+v, %v", cpu, err)
	}
	var thread SchedStat
	if err := parseThreadSchedStat([]byte("43211034 3246109 118"), &thread); err != nil || thread != (SchedStat{43211034, 3246109}) {
		t.Errorf("%+v, %v", thread, err)
	}
}

func TestZoneInfo(t *testing.T) {
	t.Parallel()
	text := "Node 0, zone    DMA32\n  pages free     731000\n        min      2312\n      nr_free_pages 731000\n  pagesets\n    cpu: 0\n" +
		"              count:    0\n              high:     2312\n    cpu: 1\n              count:    17\n              high:     2312\n" +
		"Node 0, zone   Normal\n  pagesets\n    cpu: 0\n              count:    9766\n              high:     10080\n" +
		"Node 2, zone   Normal\n  pagesets\n    cpu: 3\n              count:    5\n"
	r := kerneltest.Recorded(t, "6.12-v2")
	r.Put(t, "proc/zoneinfo", text)
	page := unit.Bytes(os.Getpagesize())
	got, err := FS(r.Roots.Proc).ZoneInfo()
	if err != nil || got.PerCPU != (17+9766+5)*page || got.Node(0) != (17+9766)*page || got.Node(1) != 0 || got.Node(2) != 5*page || got.Node(3) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "Node 0, zone DMA\n", "count: 5\n", "Node x, zone DMA\n count: 5\n", "Node 1024, zone DMA\n count: 5\n",
		"Node 0, zone DMA\n count: -5\n", "Node 0, zone DMA\n count: 1099511627777\n"} {
		if err := parseZoneInfo([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if err := parseZoneInfo([]byte(bad), &got); err == nil || got.PerCPU != 0 || got.Node(0) != 0 || got.Node(2) != 0 {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

// The collector reads it every few seconds, on machines with any number of NUMA nodes. Not parallel: it counts allocations.
func TestZoneInfoAgain(t *testing.T) {
	text := []byte("Node 0, zone Normal\n count: 7\nNode 3, zone Normal\n count: 5\n")
	var z ZoneInfo
	if n := testing.AllocsPerRun(10, func() {
		if err := parseZoneInfo(text, &z); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if page := unit.Bytes(os.Getpagesize()); z.PerCPU != 12*page || len(z.Nodes) != 4 || z.Nodes[0] != 7*page || z.Nodes[1] != 0 {
		t.Errorf("%+v", z)
	}
}

// FuzzMachine feeds every table of the machine.
func FuzzMachine(f *testing.F) {
	for _, seed := range []string{"cpu  1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 6 7 8", "MemTotal: 5 kB\nMemFree: 3 kB", "pgscan_direct 5\nallocstall_normal 2",
		"a\nb\n lo: 1 2 3 4 5 6 7 8 9 10 11 12", "8 0 sda 1 2 3 4 5 6 7 8 9 10", "1 2 3", "cpu0 0 0 0 0 0 0 1 2 3",
		"Node 0, zone Normal\n  pagesets\n    cpu: 0\n              count:    9766"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := []byte(text)
		var s Stat
		if err := parseStat(b, &s); len(s.CPU) > maxCPUs {
			t.Errorf("%d CPUs, %v", len(s.CPU), err)
		}
		var m Meminfo
		if err := parseMeminfo(b, &m); m.Used(0) < 0 || m.Total < 0 || err != nil && m != (Meminfo{}) {
			t.Errorf("%+v beside %v", m, err)
		}
		var v VMStat
		if err := parseVMStat(b, &v); err != nil && v != (VMStat{}) {
			t.Errorf("%+v beside %v", v, err)
		}
		var z ZoneInfo
		if err := parseZoneInfo(b, &z); err != nil && (z.PerCPU != 0 || len(z.Nodes) != 0) {
			t.Errorf("%+v beside %v", z, err)
		}
		var d DiskStats
		if err := parseDiskStats(b, &d); err != nil && len(d.Disks) != 0 {
			t.Errorf("%+v beside %v", d, err)
		}
		var n NetDev
		if err := parseNetDev(b, &n); err != nil && len(n.Interfaces) != 0 {
			t.Errorf("%+v beside %v", n, err)
		}
		var one SchedStat
		if err := parseThreadSchedStat(b, &one); err != nil && one != (SchedStat{}) {
			t.Errorf("%+v beside %v", one, err)
		}
		var all CPUSchedStat
		if err := parseSchedStat(b, &all); err != nil && all != (CPUSchedStat{}) {
			t.Errorf("%+v beside %v", all, err)
		}
	})
}

// TestThisMachine reads the running kernel twice: counters do not shrink, and nothing is allocated the second time. It counts
// allocations, so it is not parallel.
func TestThisMachine(t *testing.T) {
	b := root.Get()
	defer b.Put()
	stat, err := host.StatFile()
	if err != nil {
		t.Fatal(err)
	}
	defer stat.Close()
	mem, err := host.MeminfoFile()
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	vm, err := host.VMStatFile()
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	disks, err := host.DiskStatsFile()
	if err != nil {
		t.Fatal(err)
	}
	defer disks.Close()
	var one, m machine
	self := os.Getpid()
	var failed error
	all := func() {
		// errors.Join of nils does not allocate.
		failed = errors.Join(stat.Read(b, &m.Stat), mem.Read(b, &m.Mem), vm.Read(b, &m.VM), disks.Read(b, &m.Disks), host.NetDev(b, self, &m.Net))
	}
	all()
	one = m
	if n := testing.AllocsPerRun(20, all); n != 0 || failed != nil {
		t.Errorf("%v allocations, %v", n, failed)
	}
	if m.Stat.Total.Busy() <= 0 || m.Stat.Total.Busy() < one.Stat.Total.Busy() || len(m.Stat.CPU) == 0 || m.Mem.Used(0) <= 0 || len(m.Net.Interfaces) == 0 {
		t.Errorf("%+v", m)
	}
}

// TestThisThread reads our own run delay, which needs CONFIG_SCHED_INFO.
func TestThisThread(t *testing.T) {
	b := root.Get()
	defer b.Put()
	var s SchedStat
	var err error
	pid := os.Getpid()
	n := testing.AllocsPerRun(10, func() { err = host.ThreadSchedStat(b, pid, &s) })
	if errors.Is(err, unix.ENOENT) {
		kerneltest.LeaveToVM(t, kerneltest.NoFile("/proc/self/schedstat", unix.PROC_SUPER_MAGIC))
	}
	if err != nil || s.RunNS == 0 || n != 0 {
		t.Errorf("%+v, %v, %v allocations", s, err, n)
	}
	if err := host.ThreadSchedStat(b, 1<<22+1, &s); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no thread: %v", err)
	}
}

// TestTheseCPUs reads the run delay of all CPUs twice, which needs CONFIG_SCHEDSTATS.
func TestTheseCPUs(t *testing.T) {
	t.Parallel()
	b := root.Get()
	defer b.Put()
	f, err := host.SchedStatFile()
	if errors.Is(err, unix.ENOENT) {
		kerneltest.LeaveToVM(t, kerneltest.NoFile("/proc/schedstat", unix.PROC_SUPER_MAGIC))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var one, two CPUSchedStat
	if err := errors.Join(f.Read(b, &one), f.Read(b, &two)); err != nil || two.WaitNS < one.WaitNS {
		t.Errorf("%+v, then %+v, %v", one, two, err)
	}
}
