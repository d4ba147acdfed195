// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// fill writes files of a folder.
func fill(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGauge reads the quota of either version, again and again from one descriptor.
func TestGauge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		v2    bool
		files map[string]string
		file  string
		texts map[string]int
	}{
		"v1": {false, map[string]string{"cpu.cfs_quota_us": "", "cpu.cfs_period_us": "50000\n"}, "cpu.cfs_quota_us", map[string]int{"55000\n": 1100, "-1\n": unlimited, "1000\n": 20}},
		"v2": {true, map[string]string{"cpu.max": ""}, "cpu.max", map[string]int{"110000 100000\n": 1100, "max 100000\n": unlimited, "1000 50000\n": 20}},
	} {
		dir := t.TempDir()
		if _, err := openGauge(dir, c.v2); err == nil {
			t.Errorf("%s: files that are not there are read", name)
		}
		fill(t, dir, c.files)
		g, err := openGauge(dir, c.v2)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := g.allowed(); err == nil {
			t.Errorf("%s: nothing is read as %d", name, got)
		}
		for text, want := range c.texts {
			fill(t, dir, map[string]string{c.file: text})
			if got, err := g.allowed(); err != nil || got != want {
				t.Errorf("%s: %q is %d, %v; want %d", name, text, got, err, want)
			}
		}
		if err := g.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGaugeWatch: a turn ends with the first quota that is lower by enough, or at its limit.
func TestGaugeWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, map[string]string{"cpu.cfs_quota_us": "120000\n", "cpu.cfs_period_us": "100000\n"})
	g, err := openGauge(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	never := turn{Way: wayUpstream, Steps: []step{{0, 1200}}}
	begun := time.Now()
	if err := g.watch(t.Context(), begun, 20*time.Millisecond, &never); err != nil {
		t.Fatal(err)
	}
	if never.Taken != 0 || never.Reads == 0 || len(never.Steps) != 1 || time.Since(begun) < 20*time.Millisecond {
		t.Errorf("without a lower quota, after %s: %+v", time.Since(begun), never)
	}
	f, err := os.OpenFile(filepath.Join(dir, "cpu.cfs_quota_us"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	failed := make(chan error, 1)
	begun = time.Now()
	go func() {
		for _, text := range []string{"081000\n", "080000\n"} { // as long as what is there: no read shows half of a write
			time.Sleep(50 * time.Millisecond)
			if _, err := f.WriteAt([]byte(text), 0); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	got := turn{Way: wayOurs, Steps: []step{{0, 1200}}}
	if err := g.watch(t.Context(), begun, time.Minute, &got); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if len(got.Steps) != 3 || got.Steps[1].Quota != 810 || got.Steps[2].Quota != 800 {
		t.Fatalf("steps %+v", got.Steps)
	}
	if got.Less != got.Steps[1].At || got.Less < 50*time.Millisecond || got.Taken != got.Steps[2].At || got.Taken < 100*time.Millisecond {
		t.Errorf("lower %s, taken %s, steps %+v", got.Less, got.Taken, got.Steps)
	}
}

// TestCPUGroup: a process goes into every directory by which CPU is limited or counted, once.
func TestCPUGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tree cgroups.Tree
		want string
	}{
		"v2":            {cgroups.Tree{Unified: "/c"}, "/c/a/b"},
		"v1, one mount": {cgroups.Tree{Controllers: map[string]string{"cpu": "/c/cpu", "cpuacct": "/c/cpu"}, Hybrid: "/c/unified"}, "/c/cpu/a/b"},
		"v1, two":       {cgroups.Tree{Controllers: map[string]string{"cpu": "/c/cpu", "cpuacct": "/c/acct"}}, "/c/cpu/a/b /c/acct/a/b"},
		"v1, without":   {cgroups.Tree{Controllers: map[string]string{"cpu": "/c/cpu"}, Hybrid: "/c/unified"}, ""},
	} {
		g, err := cpuGroupOf(c.tree, "a/b")
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: %+v", name, g)
			}
			continue
		}
		if got := strings.Join(g.dirs(), " "); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
	}
}

// TestSpinner: it is in every group, and only the one of the last CPU is bound.
func TestSpinner(t *testing.T) {
	t.Parallel()
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		t.Fatal(err)
	}
	groups := []string{t.TempDir(), t.TempDir()}
	for _, g := range groups {
		fill(t, g, map[string]string{"cgroup.procs": ""})
	}
	free, err := newSpinner(groups...)
	if err != nil {
		t.Fatal(err)
	}
	defer free.end()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(free.cmd.Process.Pid, &set); err != nil || set != own {
		t.Errorf("it may run on %v, this process on %v, %v", set, own, err)
	}
	for _, g := range groups {
		if got, err := cgroups.Read(g, "cgroup.procs"); err != nil || got != strconv.Itoa(free.cmd.Process.Pid) {
			t.Errorf("%s has %q, %v; want %d", g, got, err, free.cmd.Process.Pid)
		}
	}
	if _, err := newSpinner(groups[0], t.TempDir()); err == nil {
		t.Error("it is in a folder that is no control group")
	}
	if !own.IsSet(lastCPU()) {
		return // a machine that keeps this process from it
	}
	last, err := lastSpinner(groups[0])
	if err != nil {
		t.Fatal(err)
	}
	defer last.end()
	if err := unix.SchedGetaffinity(last.cmd.Process.Pid, &set); err != nil || set.Count() != 1 || !set.IsSet(lastCPU()) {
		t.Errorf("it may run on %v, %v", set, err)
	}
}

// TestYieldCalm: a load begins on a class that has grown back and not while it grows, holds little, or is not limited.
func TestYieldCalm(t *testing.T) {
	t.Parallel()
	if yieldWobble >= leastTaken {
		t.Error("what wobbles passes for an answer")
	}
	begun := time.Now()
	for name, c := range map[string]struct {
		quotas []int // one a second
		want   bool
	}{
		"steady":       {[]int{1100, 950, 1200, 1050}, true},
		"held low":     {[]int{250, 250, 250, 250, 250}, false},
		"grows":        {[]int{700, 900, 1100, 1300}, false},
		"has grown":    {[]int{700, 900, 1100, 1100, 1100, 1100}, true},
		"not set yet":  {[]int{unlimited, unlimited, unlimited, unlimited}, false},
		"one has none": {[]int{1100, 1100, unlimited, 1100}, false},
	} {
		at := calm{room: yieldRoom, wobble: yieldWobble}
		got := false
		for i, q := range c.quotas {
			got = at.see(begun.Add(time.Duration(i)*time.Second), q)
		}
		if got != c.want {
			t.Errorf("%s: calm %t", name, got)
		}
	}
	for quota, want := range map[int]bool{0: false, yieldRoom - 1: false, yieldRoom: true, 1300: true, unlimited: false} {
		if roomy(quota) != want {
			t.Errorf("room in %s: %t", cpus(quota), !want)
		}
	}
}

// TestLift: the class has no quota before an agent starts.
func TestLift(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tree       cgroups.Tree
		file, want string
	}{
		"v1": {cgroups.Tree{Controllers: map[string]string{"cpu": "/c"}}, "cpu.cfs_quota_us", "-1"},
		"v2": {cgroups.Tree{Unified: "/c"}, "cpu.max", "max"},
	} {
		dir := t.TempDir()
		fill(t, dir, map[string]string{c.file: ""})
		s := stage{tree: c.tree, class: cpuGroup{limits: dir}}
		err := s.lift()
		if got, failed := cgroups.Read(dir, c.file); err != nil || failed != nil || got != c.want {
			t.Errorf("%s: %q, %v, %v", name, got, err, failed)
		}
	}
}

// TestTellYields: what never came is counted, makes the longest time none, and the median where it is half of all.
func TestTellYields(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	one := func(way string, quota int, taken time.Duration) *yielded {
		return &yielded{turn: turn{Way: way, Less: taken, Taken: taken, Steps: []step{{0, quota}}, Reads: 10, Over: 100 * ms, Last: 2 * ms}, batch: 0.97, load: 0.9}
	}
	answered := yields{one(wayOurs, 1100, 500*ms), one(wayUpstream, 1000, 2000*ms), one(wayOurs, 1200, 700*ms), one(wayUpstream, 900, 1500*ms), one(wayOurs, 1150, 600*ms), one(wayUpstream, 950, 1800*ms)}
	half := append(slices.Clone(answered[:2]), one(wayUpstream, 900, 0))
	const what = "LS load begins → BE class's quota lower by 0.40 CPUs, "
	for name, c := range map[string]struct {
		all  yields
		want map[string]string
	}{
		"answered": {answered, map[string]string{
			what + wayOurs: "median 600 ms, p90 700 ms, max 700 ms (3)", what + wayUpstream: "median 1.80 s, p90 2.00 s, max 2.00 s (3)",
			"the same, medians, upstream / ours": "3.0", "turns without an answer in 30s": "ours 0 of 3; upstream 0 of 3",
			"quota at the load's begin, CPUs": "ours 1.10 to 1.20, median 1.15; upstream 0.90 to 1.00, median 0.95",
		}},
		"half": {half, map[string]string{
			what + wayUpstream: "median none, p90 none, max none (2)", "the same, medians, upstream / ours": "none",
			"turns without an answer in 30s": "ours 0 of 1; upstream 1 of 2",
		}},
		"ours alone": {answered[:1], map[string]string{what + wayUpstream: "", "the same, medians, upstream / ours": "", "turns without an answer in 30s": "ours 0 of 1"}},
	} {
		r := newReport("x")
		tellYields(r, c.all)
		got := map[string]string{}
		for _, f := range r.figures {
			got[f.name] = f.value
			if f.goal != "" || f.verdict != "" {
				t.Errorf("%s: %s is judged", name, f.name)
			}
		}
		for figure, want := range c.want {
			if got[figure] != want {
				t.Errorf("%s: %s is %q, want %q", name, figure, got[figure], want)
			}
		}
	}
	want := "upstream lower never, by 0.40 CPUs never; used: best effort 0.97, load 0.90; 10 reads, at most 0.00 µs apart, the last 2.00 ms after the one before; 0.90 at 0.00 µs"
	if got := half[2].String(); got != want {
		t.Errorf("a turn without an answer:\n%s\nwant\n%s", got, want)
	}
}

// TestYieldFlags: the benchmark is chosen by its name, and takes at least one load.
func TestYieldFlags(t *testing.T) {
	t.Parallel()
	if o, err := parse([]string{"-only", "yield", "-yield-rounds", "2"}, io.Discard); err != nil || o.yield.rounds != 2 {
		t.Errorf("%d rounds, %v", o.yield.rounds, err)
	}
	if _, err := parse([]string{"-yield-rounds", "0"}, io.Discard); err == nil {
		t.Error("no round is taken")
	}
}
