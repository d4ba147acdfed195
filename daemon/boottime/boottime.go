// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package boottime reads the machine's own clock, by which the programs of one node tell each other when something was: the
// time of day may be set meanwhile, and each process has a monotonic clock of its own.
//
// There is no input; output is the time since boot, with the time for which the machine slept (CLOCK_BOOTTIME, clock_gettime(2)).
// It imports the standard library and golang.org/x/sys only.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since boot; 0 where the machine does not tell, as no Linux does.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
