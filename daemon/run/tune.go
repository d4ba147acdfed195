// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Version of a program. main holds the variables that the linker fills (-ldflags "-X main.version=…") and passes them.
type Version struct{ Program, Version, Commit string }

// String is "koord-nri v0.1.0 (abc123, go1.26)".
func (v Version) String() string {
	ver, commit := v.Version, v.Commit
	if ver == "" {
		ver = "unreleased"
	}
	if commit == "" {
		commit = "no commit"
	}
	return fmt.Sprintf("%s %s (%s, %s)", v.Program, ver, commit, runtime.Version())
}

// TuneMemory sets the soft memory limit in bytes and GOGC in percent; 0 leaves one as it is, and so does the user's own
// GOMEMLIMIT or GOGC in the environment.
func TuneMemory(getenv func(string) string, limit int64, gogc int) {
	if limit > 0 && getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	if gogc > 0 && getenv("GOGC") == "" {
		debug.SetGCPercent(gogc)
	}
}

// TuneProcessors bounds how many processors Go code of this process uses at a time; 0 leaves that as it is, and so does the
// user's own GOMAXPROCS in the environment. With one, a goroutine that wakes another never wakes a second thread to look
// for work: where events come one by one, that costs more than it wins.
func TuneProcessors(getenv func(string) string, n int) {
	if n > 0 && getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(n)
	}
}

// TuneTimers lets every thread of the process wake up to slack later from a sleep than it asked for (timerslack_ns of
// proc(5), 50 µs by default); 0 leaves that as it is. The Go runtime has a thread that sleeps for 20 µs again and again
// while Go code runs; where it shares a processor with that code, it interrupts it as often. Threads that are made later
// inherit the slack. Without CAP_SYS_NICE it returns an error that the caller logs.
func TuneTimers(slack time.Duration) error {
	if slack <= 0 {
		return nil
	}
	return eachThread(func(tid int) error {
		// A thread has no such file below its process, but one of its own.
		err := os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid), strconv.AppendInt(nil, slack.Nanoseconds(), 10), 0o600)
		if err != nil {
			return fmt.Errorf("set timer slack: %w", err)
		}
		return nil
	})
}

// Prioritise sets the nice value of every thread of the process. Daemons use -10: handlers run under the runtime's
// node-wide lock, so every microsecond that we wait for a CPU is waited by each container creation on the node. Threads
// that the Go runtime makes later inherit it. Without CAP_SYS_NICE it returns an error that the caller logs.
func Prioritise(nice int) error {
	return eachThread(func(tid int) error {
		// setpriority(2) with a thread id sets one thread; POSIX wants the process, the kernel does not.
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil {
			return fmt.Errorf("set priority of thread %d to %d: %w", tid, nice, err)
		}
		return nil
	})
}

// eachThread calls set with each thread of this process. One that has ended meanwhile is no error. A thread inherits from the
// one that makes it, and that may be one which the list has not reached yet: only a list without a new one ends the search.
func eachThread(set func(tid int) error) error {
	done := map[int]bool{}
	for more := true; more; {
		more = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list own threads: %w", err)
		}
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || done[tid] {
				continue
			}
			if err := set(tid); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			done[tid], more = true, true
		}
	}
	return nil
}
