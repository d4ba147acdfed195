// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

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

// Prioritise sets the nice value of every thread of the process. Daemons use -10: handlers run under the runtime's
// node-wide lock, so every microsecond that we wait for a CPU is waited by each container creation on the node. Threads
// that the Go runtime makes later inherit it. Without CAP_SYS_NICE it returns an error that the caller logs.
func Prioritise(nice int) error {
	// setpriority(2) with a thread id sets one thread; POSIX wants the process, the kernel does not.
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list own threads: %w", err)
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && err != unix.ESRCH { // ESRCH: ended meanwhile
			return fmt.Errorf("set priority of thread %d to %d: %w", tid, nice, err)
		}
	}
	return nil
}
