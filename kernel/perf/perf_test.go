// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package perf

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/node"
)

// record is what read(2) returns for a group of two.
func record(enabled, running, cycles, instructions uint64) []byte {
	b := binary.NativeEndian.AppendUint64(nil, 2)
	for _, n := range []uint64{enabled, running, cycles, instructions} {
		b = binary.NativeEndian.AppendUint64(b, n)
	}
	return b
}

func TestParseGroup(t *testing.T) {
	t.Parallel()
	got, err := parseGroup(record(10_000_000_000, 9_999_000_000, 31_415_926_535, 27_182_818_284))
	want := group{10_000_000_000, 9_999_000_000, 31_415_926_535, 27_182_818_284}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	// Little-endian bytes as strace shows them on amd64 and arm64.
	if raw, _ := hex.DecodeString("0200000000000000" + "00e40b5402000000" + "00f2052a01000000" + "0100000000000000" + "0000000001000000"); runtime.GOARCH != "s390x" {
		want := group{10_000_000_000, 5_000_000_000, 1, 1 << 32}
		if got, err := parseGroup(raw); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for name, bad := range map[string][]byte{"empty": nil, "short": record(1, 1, 1, 1)[:39], "one event": append([]byte{1}, make([]byte, 39)...)} {
		if g, err := parseGroup(bad); err == nil || g != (group{}) {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}

// TestScaling: counters that were shared with others are scaled by the time they were ours, CPU by CPU.
func TestScaling(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cpus []group
		want Counts
		cpi  float64
	}{
		"always counted":          {[]group{{100, 100, 300, 150}}, Counts{300, 150, 100, 100}, 2},
		"half of the time":        {[]group{{100, 50, 300, 150}}, Counts{600, 300, 100, 50}, 2},
		"each CPU by its own":     {[]group{{100, 50, 300, 100}, {10, 10, 400, 300}}, Counts{1000, 500, 110, 60}, 2},
		"did not run on one":      {[]group{{0, 0, 0, 0}, {10, 10, 90, 30}}, Counts{90, 30, 10, 10}, 3},
		"not counted on one":      {[]group{{50, 0, 0, 0}, {10, 10, 90, 30}}, Counts{90, 30, 60, 10}, 3},
		"clock skew of the times": {[]group{{100, 101, 30, 10}}, Counts{30, 10, 100, 101}, 3},
		"did not run":             {[]group{{0, 0, 0, 0}}, Counts{}, -1},
	} {
		var sum Counts
		for _, g := range c.cpus {
			sum.add(g)
		}
		if diff := cmp.Diff(c.want, sum); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if cpi, ok := sum.CPI(); ok != (c.cpi > 0) || ok && math.Abs(cpi-c.cpi) > 1e-9 {
			t.Errorf("%s: CPI %v, %v", name, cpi, ok)
		}
	}
}

func FuzzParseGroup(f *testing.F) {
	f.Add(record(1, 2, 3, 4))
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := parseGroup(b)
		if err == nil && len(b) != groupSize {
			t.Errorf("%d bytes are a group", len(b))
		}
		var c Counts
		c.add(g)
		if c.Cycles < 0 || math.IsNaN(c.Cycles) || math.IsInf(c.Instructions, 0) {
			t.Errorf("%+v", c)
		}
	})
}

// TestThisHost: either the hardware counts, or there is a typed refusal with the kernel's errno in it.
func TestThisHost(t *testing.T) {
	t.Parallel()
	v1 := root.Default()
	v1.Cgroup = t.TempDir()
	if _, err := Open(v1, node.CgroupV1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no perf_event hierarchy: %v", err)
	}
	_, err := Open(root.Default(), node.CgroupV2)
	var unsupported *proc.UnsupportedError
	if err != nil && (!errors.As(err, &unsupported) || unsupported.Why == "") {
		t.Errorf("refused without a reason: %v", err)
	}
	fds, raw := (&FS{events: hardware}).pair(0, -1, 0)
	if (raw == nil) != (err == nil) {
		t.Errorf("Open says %v, the kernel %v", err, raw)
	}
	if raw == nil {
		closeAll(fds[:])
	}
}

// notCounted ends the test where the kernel refuses to count at all: for want of a right, or without the code for it.
func notCounted(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, os.ErrPermission) {
		kerneltest.Permitted(t, err, unix.CAP_PERFMON, unix.CAP_SYS_ADMIN)
	}
	t.Log(err)
	kerneltest.LeaveToVM(t, kerneltest.AnyOf(kerneltest.Unbuilt("CONFIG_PERF_EVENTS"), kerneltest.Unbuilt("CONFIG_CGROUP_PERF")))
}

// TestCgroupOnThisHost counts a cgroup with the kernel's software clocks in place of the hardware's counters: the same calls, on
// every machine.
func TestCgroupOnThisHost(t *testing.T) {
	t.Parallel()
	mount, name := kerneltest.Unified(t), "/koord-rt-perf-test-"+strconv.Itoa(os.Getpid())
	kerneltest.Permitted(t, os.Mkdir(mount+name, 0o755), unix.CAP_DAC_OVERRIDE)
	t.Cleanup(func() { unix.Rmdir(mount + name) }) //nolint:errcheck // its process is gone by then
	fs := &FS{base: mount, events: [2]event{
		{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK}, {unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK},
	}}
	if err := fs.probe(); err != nil {
		notCounted(t, err)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	c, err := fs.Count(name, cpus)
	if err != nil {
		notCounted(t, err)
	}
	defer c.Close()
	if got, err := c.Read(); err != nil || got != (Counts{}) || len(c.fds) != 2*len(cpus) {
		t.Errorf("an empty cgroup: %+v, %v, %d descriptors", got, err, len(c.fds))
	}
	burn(t, mount+name)
	got, err := c.Read()
	if err != nil || got.Cycles == 0 || got.EnabledNS == 0 || got.RunningNS == 0 {
		t.Errorf("after work: %+v, %v", got, err)
	}
	if _, err := fs.Count("/no/such/cgroup", cpus); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no cgroup: %v", err)
	}
	if _, err := fs.Count("/../x", cpus); !errors.Is(err, root.ErrOutside) {
		t.Errorf("outside: %v", err)
	}
}

// burn runs a process in the cgroup until it has done its sums.
func burn(t *testing.T, dir string) {
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
	err = root.Write(dir+"/cgroup.procs", strconv.Itoa(p.Pid))
	w.Close()
	if _, werr := p.Wait(); err != nil || werr != nil {
		t.Fatal(err, werr)
	}
}
