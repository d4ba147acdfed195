// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package psi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/kernel/root"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTriggerChecks(t *testing.T) {
	t.Parallel()
	ok := psi.Trigger{Stall: 70 * time.Millisecond, Window: time.Second}
	if got := ok.String(); got != "some 70000 1000000" || ok.Check() != nil {
		t.Errorf("%q, %v", got, ok.Check())
	}
	if got := (psi.Trigger{Kind: psi.Full, Stall: 1500 * time.Microsecond, Window: 10 * time.Second}).String(); got != "full 1500 10000000" {
		t.Error(got)
	}
	for name, bad := range map[string]psi.Trigger{
		"short window":      {Stall: time.Millisecond, Window: 499 * time.Millisecond},
		"long window":       {Stall: time.Millisecond, Window: 11 * time.Second},
		"no stall":          {Window: time.Second},
		"stall over window": {Stall: 2 * time.Second, Window: time.Second},
		"kind":              {Kind: 2, Stall: time.Millisecond, Window: time.Second},
	} {
		if bad.Check() == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// start runs a watcher until the test ends.
func start(t *testing.T) *psi.Watcher {
	t.Helper()
	w, err := psi.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// TestRefusalsAreTyped: a missing file, a file that is none, and a closed watcher.
func TestRefusalsAreTyped(t *testing.T) {
	t.Parallel()
	w := start(t)
	trigger := psi.Trigger{Stall: time.Millisecond, Window: 2 * time.Second}
	_, err := w.Add(t.TempDir()+"/cpu.pressure", trigger, func(psi.Event) {})
	var unsupported *proc.UnsupportedError
	if !errors.Is(err, errors.ErrUnsupported) || !errors.As(err, &unsupported) || !errors.Is(err, unix.ENOENT) {
		t.Errorf("no file: %v", err)
	}
	if _, err := w.Add("/proc/self/comm", psi.Trigger{}, func(psi.Event) {}); err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a trigger that no kernel takes: %v", err)
	}
	if _, err := w.Add("/proc/self/oom_score_adj", trigger, func(psi.Event) {}); !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("no pressure file: %v", err)
	}
	closed, err := psi.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := closed.Run(ctx); err != nil {
		t.Errorf("Run after its context's end: %v", err)
	}
	if _, err := closed.Add("/proc/pressure/cpu", trigger, func(psi.Event) {}); err == nil {
		t.Error("a closed watcher took a trigger")
	}
}

// needPSI leaves the test to the VM where this kernel has no pressure accounting, or was told to do without (psi=0).
func needPSI(t *testing.T) {
	t.Helper()
	if _, err := root.Read("/proc/pressure/cpu"); err != nil {
		kerneltest.LeaveToVM(t, kerneltest.AnyOf(kerneltest.Said(err, unix.EOPNOTSUPP), kerneltest.NoFile("/proc/pressure", unix.PROC_SUPER_MAGIC)))
	}
}

// window is the shortest that this process may use.
func window(t *testing.T) time.Duration {
	t.Helper()
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		t.Fatal(err)
	}
	if data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		return psi.MinWindow
	}
	return psi.FreeWindow
}

// cgroup makes a cgroup v2 group, of a hybrid node's hierarchy without controllers if need be: pressure does not need any.
func cgroup(t *testing.T) string {
	t.Helper()
	dir := kerneltest.Unified(t) + "/koord-rt-psi-test-" + strconv.Itoa(os.Getpid()) + strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))
	kerneltest.Permitted(t, os.Mkdir(dir, 0o755), unix.CAP_DAC_OVERRIDE)
	t.Cleanup(func() { unix.Rmdir(dir) }) //nolint:errcheck // the test may have removed it
	return dir
}

// spinners burn CPU in the cgroup, more of them than there are CPUs.
func spinners(t *testing.T, dir string, n int) (stop func()) {
	t.Helper()
	var all []*os.Process
	stop = func() {
		for _, p := range all {
			p.Kill() //nolint:errcheck // Wait tells
			p.Wait() //nolint:errcheck // it was killed
		}
		all = nil
	}
	t.Cleanup(func() { stop() })
	for range n {
		p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "while :; do :; done"}, &os.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
		if err := root.Write(dir+"/cgroup.procs", strconv.Itoa(p.Pid)); err != nil {
			t.Fatal(err)
		}
	}
	return stop
}

// TestKernelFires: tasks that fight for the CPU in a cgroup fire its trigger and the machine's; removing the cgroup is told too.
func TestKernelFires(t *testing.T) {
	t.Parallel()
	needPSI(t)
	dir, win := cgroup(t), window(t)
	w := start(t)
	trigger := psi.Trigger{Stall: win / 100, Window: win}
	ours, machine := make(chan psi.Event, 64), make(chan psi.Event, 64)
	offer := func(c chan psi.Event) func(psi.Event) {
		return func(e psi.Event) {
			select {
			case c <- e:
			default:
			}
		}
	}
	if _, err := w.Add(dir+"/cpu.pressure", trigger, offer(ours)); err != nil {
		t.Fatal(err)
	}
	whole, err := w.Add("/proc/pressure/cpu", trigger, offer(machine))
	if err != nil {
		t.Fatal(err)
	}
	stop := spinners(t, dir, cpus(t)+2)
	for name, c := range map[string]chan psi.Event{"cgroup": ours, "machine": machine} {
		if e := await(t, c, name); e.Gone {
			t.Errorf("%s: gone", name)
		}
	}
	whole.Close()
	whole.Close()
	stop()
	if err := unix.Rmdir(dir); err != nil {
		t.Fatal(err)
	}
	for e := await(t, ours, "removal"); !e.Gone; e = await(t, ours, "removal") {
	}
	var s psi.Stat
	raw, err := root.Read("/proc/pressure/cpu")
	if err == nil {
		err = psi.Parse([]byte(raw), &s)
	}
	if err != nil || s.Some.TotalUS == 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestOldStallsDoNotFire: what went on to stall after an event does not fire long afterwards, at stalls far below the threshold; and one that
// is as large as the threshold still does. Only triggers of a process with CAP_SYS_RESOURCE, and only since Linux 6.7, need help.
func TestOldStallsDoNotFire(t *testing.T) {
	t.Parallel()
	needPSI(t)
	dir, win := cgroup(t), psi.MinWindow
	trigger := psi.Trigger{Stall: win / 2, Window: win}
	events := make(chan psi.Event, 64)
	_, err := start(t).Add(dir+"/cpu.pressure", trigger, func(e psi.Event) { events <- e })
	if err != nil {
		kerneltest.LeaveToVM(t, kerneltest.AnyOf(kerneltest.Said(err, unix.EINVAL), kerneltest.Denied(err, unix.CAP_SYS_RESOURCE)))
	}
	spinners(t, dir, 2)
	pids, err := root.Read(dir + "/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	share(t, pids)
	all := func(s syscall.Signal) {
		for _, f := range strings.Fields(pids) {
			pid, err := strconv.Atoi(f)
			if err := errors.Join(err, syscall.Kill(pid, s)); err != nil {
				t.Fatalf("%s to %q: %v", s, f, err)
			}
		}
	}
	stalled := func() time.Duration {
		var s psi.Stat
		raw, err := root.Read(dir + "/cpu.pressure")
		if err == nil {
			err = psi.Parse([]byte(raw), &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(s.Some.TotalUS) * time.Microsecond
	}
	quiet := func(d time.Duration) (came bool) {
		for end := time.After(d); ; came = true {
			select {
			case <-events:
			case <-end:
				return came
			}
		}
	}
	for try := 1; ; try++ {
		await(t, events, "load")
		time.Sleep(win / 2) // it goes on after the event
		all(syscall.SIGSTOP)
		for quiet(2 * win) {
		}
		before := stalled()
		for range 5 { // the kernel looks ten times in a window, from a tenth after the first stall on
			all(syscall.SIGCONT)
			time.Sleep(win / 100)
			all(syscall.SIGSTOP)
			time.Sleep(win / 10)
		}
		came := quiet(win / 2)
		growth := stalled() - before
		if growth < trigger.Stall/2 {
			if came {
				t.Errorf("fired at a stall of %s, want %s in %s", growth, trigger.Stall, win)
			}
			if came || growth > 0 {
				break
			}
		}
		if try == 20 {
			t.Fatalf("this machine does not stall for moments only: %s, or not at all", growth)
		}
		all(syscall.SIGCONT)
	}
	all(syscall.SIGCONT)
	await(t, events, "load again")
}

// share binds processes to one CPU, so that all but one of them wait all the time, as the kernel weighs CPUs.
func share(t *testing.T, pids string) {
	t.Helper()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	for _, f := range strings.Fields(pids) {
		pid, err := strconv.Atoi(f)
		if err == nil {
			err = unix.SchedSetaffinity(pid, &one)
		}
		if err != nil {
			t.Fatalf("bind %q: %v", f, err)
		}
	}
}

func await(t *testing.T, c chan psi.Event, what string) psi.Event {
	t.Helper()
	select {
	case e := <-c:
		return e
	case <-t.Context().Done():
	case <-time.After(time.Minute):
	}
	t.Fatalf("%s: the kernel did not fire", what)
	return psi.Event{}
}

func cpus(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	return set.Count()
}

// TestManyWatchesCloseCleanly opens and closes from several goroutines while events arrive.
func TestManyWatchesCloseCleanly(t *testing.T) {
	t.Parallel()
	needPSI(t)
	w := start(t)
	trigger := psi.Trigger{Stall: time.Microsecond, Window: window(t)}
	done := make(chan error, 4)
	for range cap(done) {
		go func() {
			for i := range 50 {
				watch, err := w.Add("/proc/pressure/io", trigger, func(psi.Event) {})
				if err != nil {
					done <- fmt.Errorf("watch %d: %w", i, err)
					return
				}
				watch.Close()
			}
			done <- nil
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
