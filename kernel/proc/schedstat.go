// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package proc

import (
	"bytes"
	"strconv"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/scan"
)

// SchedStat is how long a thread ran, and waited for a CPU while it could have run, in nanoseconds since it was created.
type SchedStat struct{ RunNS, WaitNS uint64 }

// ThreadSchedStat reads /proc/TID/schedstat of one thread (procfs shows threads there too, by their own id). Kernels without
// CONFIG_SCHED_INFO do not have it.
func (fs FS) ThreadSchedStat(b *root.Buffer, tid int, out *SchedStat) error {
	var digits [20]byte
	raw, err := b.Read(string(fs), "/", string(strconv.AppendInt(digits[:0], int64(tid), 10)), "/schedstat")
	if err != nil {
		return err
	}
	if err := parseThreadSchedStat(raw, out); err != nil {
		return &root.FileError{Op: "parse", Path: fs.pid(tid, "schedstat"), Err: err}
	}
	return nil
}

// parseThreadSchedStat reads /proc/PID/schedstat: time on a CPU, time waiting on a run queue, both in nanoseconds, and the number
// of time slices (Documentation/scheduler/sched-stats.rst):
//
//	43211034 3246109 118
func parseThreadSchedStat(b []byte, out *SchedStat) error {
	run, rest, ok1 := scan.UintField(b)
	wait, _, ok2 := scan.UintField(rest)
	if !ok1 || !ok2 {
		return scan.ErrFormat
	}
	*out = SchedStat{RunNS: run, WaitNS: wait}
	return nil
}

// CPUSchedStat is the waiting of all tasks on the run queues of all CPUs, in nanoseconds since boot.
type CPUSchedStat struct{ WaitNS uint64 }

// SchedStatFile keeps /proc/schedstat open, which needs CONFIG_SCHEDSTATS. Not for concurrent use.
func (fs FS) SchedStatFile() (*root.File[CPUSchedStat], error) {
	return root.NewFile(string(fs), "schedstat", parseSchedStat)
}

// schedStatWait is the column of run_delay in a cpu line, after the name: seven counters, then running, waiting, slices.
const schedStatWait = 8

// parseSchedStat reads /proc/schedstat, version 15 or later (Documentation/scheduler/sched-stats.rst):
//
//	version 17
//	cpu0 0 0 0 0 0 0 61243554321 9912004312 812342
//	domain0 MC 00000003 …
func parseSchedStat(b []byte, out *CPUSchedStat) error {
	var sum uint64
	seen := false
	for len(b) > 0 {
		var line []byte
		line, b = scan.Line(b)
		if !bytes.HasPrefix(line, []byte("cpu")) {
			continue
		}
		_, rest := scan.Field(line)
		var wait uint64
		for range schedStatWait {
			var ok bool
			if wait, rest, ok = scan.UintField(rest); !ok {
				return scan.ErrFormat
			}
		}
		sum += wait
		seen = true
	}
	if !seen {
		return scan.ErrFormat
	}
	out.WaitNS = sum
	return nil
}
