// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// realTimePriority is the lowest: whoever else needs real time on the node comes before us.
	realTimePriority = 1
	// restless is the processor time that a thread may use in real time without sleeping once (RLIMIT_RTTIME, setrlimit(2)). Handlers take
	// less than a millisecond, background work rests after a quarter of one, and a garbage collection takes some ten; where each takes twenty
	// times as long, in an emulated machine, it is still less.
	restless = 500 * time.Millisecond
	// hopeless is where the kernel kills instead, should the way back not work either.
	hopeless = 5 * time.Second
	// lookAgain is how often a thread is looked for that the Go runtime's own has made, which gives it no real time, and what all of them have used.
	lookAgain = 10 * time.Second
	// mostUsed is the part of one processor that all threads together may use from look to look: some that take turns sleep in between, so
	// the kernel does not miss their sleep. 64 creations at once take a tenth of it.
	mostUsed = 0.5
)

// RealTime lets every thread of the process that runs Go code, and those that are made later, run before all that share a processor by weight
// (SCHED_RR, sched(7)), round robin with the lowest priority there is. Nice values wait behind it for the way back. The kernel sends SIGXCPU to a
// process with a thread that does not sleep; then all of them share again (WatchRealTime). Without CAP_SYS_NICE, and in a cgroup without real time
// of its own (cpu.rt_runtime_us of cgroup v1), it returns an error and nothing has changed but the limit.
func RealTime() error { return realTime(restless, hopeless) }

func realTime(soft, hard time.Duration) error {
	limit := unix.Rlimit{Cur: uint64(soft.Microseconds()), Max: uint64(hard.Microseconds())}
	if err := unix.Setrlimit(unix.RLIMIT_RTTIME, &limit); err != nil {
		return fmt.Errorf("limit real time to %v: %w", hard, err)
	}
	err := keepRealTime()
	if err != nil { // some threads may have it
		err = errors.Join(err, Share())
	}
	return err
}

// keepRealTime gives real time to all threads but the Go runtime's own. That one sleeps for 20 µs again and again while Go code runs, and takes the
// processor from a goroutine that is in a system call meanwhile: timer slack calms it (TuneTimers), and real time has none.
func keepRealTime() error {
	own, err := runtimesOwn()
	if err != nil {
		return err
	}
	return setPolicy(unix.SCHED_RR, realTimePriority, own)
}

// Share takes RealTime back: every thread shares its processor by its nice value. The kernel has set its timer slack to what it began with.
func Share() error { return setPolicy(unix.SCHED_NORMAL, 0, 0) }

// setPolicy gives every thread but one a policy, and leaves the nice value.
func setPolicy(policy, priority uint32, but int) error {
	return eachThread(func(tid int) error {
		if tid == but {
			return nil
		}
		has, err := unix.SchedGetAttr(tid, 0)
		if err != nil {
			return fmt.Errorf("read scheduling of thread %d: %w", tid, err)
		}
		if has.Policy == policy && has.Priority == priority {
			return nil
		}
		// What was read does not tell a nice value that waits behind real time. The system call has 20 minus it.
		up, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
		if err != nil {
			return fmt.Errorf("read nice value of thread %d: %w", tid, err)
		}
		next := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority, Nice: int32(20 - up)} //nolint:gosec // -20 to 19
		if err := unix.SchedSetAttr(tid, &next, 0); err != nil {
			return fmt.Errorf("set scheduling of thread %d to policy %d, priority %d: %w", tid, policy, priority, err)
		}
		return nil
	})
}

// runtimesOwn is the Go runtime's thread that runs no Go code (sysmon): the first that a process makes. Numbers of threads grow, and begin anew
// behind the largest.
func runtimesOwn() (int, error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, fmt.Errorf("list own threads: %w", err)
	}
	process := os.Getpid()
	first, after := 0, 0
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil || tid == process {
			continue
		}
		if first == 0 || tid < first {
			first = tid
		}
		if tid > process && (after == 0 || tid < after) {
			after = tid
		}
	}
	if after > 0 {
		return after, nil
	}
	return first, nil
}

// WatchRealTime waits for the kernel's word that a thread does not sleep, and looks for itself whether all of them do too little; then it gives real
// time back, and tells. It returns when ctx ends or when it has told. Meanwhile it sees to threads that have come without.
func WatchRealTime(ctx context.Context, told func(why string, err error)) {
	watchRealTime(ctx, lookAgain, told)
}

func watchRealTime(ctx context.Context, every time.Duration, told func(why string, err error)) {
	sleepless := make(chan os.Signal, 1)
	signal.Notify(sleepless, unix.SIGXCPU)
	defer signal.Stop(sleepless)
	again := time.NewTicker(every)
	defer again.Stop()
	looked, before := time.Now(), processorTime()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sleepless:
			told(fmt.Sprintf("a thread used %v of processor time in real time without sleeping", restless), Share())
			return
		case <-again.C:
			now, used := time.Now(), processorTime()
			if within := now.Sub(looked); float64(used-before) > mostUsed*float64(within) {
				told(fmt.Sprintf("its threads used %v of processor time in %v", (used-before).Round(time.Millisecond), within.Round(time.Millisecond)), Share())
				return
			}
			looked, before = now, used
			if err := keepRealTime(); err != nil {
				told("new threads are refused it: "+err.Error(), Share())
				return
			}
		}
	}
}

// processorTime is what this process has used, in user mode and in the kernel.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0 // it fails for no such argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
