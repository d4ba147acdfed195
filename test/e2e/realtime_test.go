// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// nriNice is what koord-nri gives itself, in force where it is not in real time.
const nriNice = -10

// seenTo is longer than koord-nri takes to look at its threads again (ten seconds, run.WatchRealTime): one that the Go runtime's own has made
// shares its processor until then. Beside guests that want every processor there is one now and then.
const seenTo = 15 * time.Second

// lifecycleRealTime: each thread of koord-nri is in real time, and when the kernel says that one does not sleep, none is any more, the nice value
// that waited behind it is in force, people are told, and pods get what they get. Whoever does not want it does not have it.
func lifecycleRealTime(r *rig) {
	r.up(standard, nil)
	if err := realTimeHere(); err != nil { // a cgroup of v1 without real time, in which koord-nri is as this test is
		r.threads(unix.SCHED_NORMAL, nriNice)
		r.toldOfPriority("warn", unix.EPERM.Error())
		r.t.Logf("the kernel refuses real time here: %v", err)
		return
	}
	r.threads(unix.SCHED_RR, nriNice)
	r.toldOfPriority("ok", status.InRealTime)
	r.now(r.pod(bePod("realtime-first")), wants("BE", ""))
	r.threads(unix.SCHED_RR, nriNice) // those that the pod has made too

	if err := r.plugin.Process.Signal(unix.SIGXCPU); err != nil { // as the kernel does at RLIMIT_RTTIME
		r.t.Fatal(err)
	}
	r.threads(unix.SCHED_NORMAL, nriNice)
	r.toldOfPriority("warn", "real time was given back")
	r.now(r.pod(bePod("realtime-given-back")), wants("BE", ""))
	r.threads(unix.SCHED_NORMAL, nriNice)

	r.stop(syscall.SIGKILL)
	r.again()
	r.threads(unix.SCHED_RR, nriNice)

	r.stop(syscall.SIGTERM)
	r.up(standard, map[string]any{"realTime": false})
	r.threads(unix.SCHED_NORMAL, nriNice)
	r.toldOfPriority("ok", status.RealTimeOff)
}

// realTimeHere tries whether the kernel has real time for a process of this cgroup.
func realTimeHere() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err
	}
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0); err != nil {
		return err
	}
	return unix.SchedSetAttr(0, before, 0)
}

// threads waits until every thread of koord-nri has the policy and the nice value. In real time the Go runtime's own is not, for without its timer
// slack it would take the processor from the others.
func (r *rig) threads(policy uint32, nice int) {
	r.t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(r.plugin.Process.Pid), "task")
	r.eventually(seenTo, func() error {
		list, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		sharing := 0
		for _, e := range list {
			tid, err := strconv.Atoi(e.Name())
			if err != nil {
				return err
			}
			attr, err := unix.SchedGetAttr(tid, 0)
			if errors.Is(err, unix.ESRCH) {
				continue // it has ended
			}
			up, err2 := unix.Getpriority(unix.PRIO_PROCESS, tid)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			slack, err := os.ReadFile(filepath.Join("/proc", e.Name(), "timerslack_ns")) // a thread has it below its own number
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			shares := attr.Policy == unix.SCHED_NORMAL
			if shares && err == nil && strings.TrimSpace(string(slack)) != "1000000" {
				return fmt.Errorf("thread %d of koord-nri has a timer slack of %s ns", tid, slack)
			}
			if shares && 20-up == nice && policy == unix.SCHED_RR {
				sharing++
				continue
			}
			if attr.Policy != policy || 20-up != nice || policy == unix.SCHED_RR && attr.Priority != 1 {
				return fmt.Errorf("thread %d of koord-nri has policy %d, priority %d, nice %d; want policy %d, nice %d",
					tid, attr.Policy, attr.Priority, 20-up, policy, nice)
			}
		}
		if policy == unix.SCHED_RR && sharing != 1 {
			return fmt.Errorf("%d threads of koord-nri share a processor, and %d are in real time", sharing, len(list)-sharing)
		}
		return nil
	})
}

// toldOfPriority waits until koordctl doctor says so.
func (r *rig) toldOfPriority(result, text string) {
	r.t.Helper()
	r.eventually(20*time.Second, func() error { // the status is written every few seconds
		out, err := r.ctl("doctor")
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 2 && f[1] == "priority" && f[0] == result && strings.Contains(line, text) {
				return nil
			}
		}
		return fmt.Errorf("doctor says of the priority not %s, %q (%v):\n%s", result, text, err, out)
	})
}
