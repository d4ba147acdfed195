// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vm

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

const (
	// cpusPerGuest is how many of the host's CPUs a guest of 8 emulated ones should find beside whatever else runs; with less, guests
	// that run side by side (packages under go test do) see stalls that look like bugs.
	cpusPerGuest = 4
	// envGuests is how many guests may run at a time, for who knows that they have little company: one of them keeps little more than
	// one CPU busy.
	envGuests = "KOORD_RT_GUESTS"
	// slotPatience is how long one slot is tried before the next.
	slotPatience = 300 * time.Millisecond
)

// takeSlot waits until the host has room for one more guest, across all processes that share the cache.
func takeSlot(ctx context.Context, root string) (release func(), err error) {
	quiet, err := parts.Open(parts.Options{Root: root}) // no progress lines: each try would write one
	if err != nil {
		return nil, err
	}
	slots, err := slots(os.Getenv(envGuests), runtime.NumCPU())
	if err != nil {
		return nil, err
	}
	for i := 0; ; i = (i + 1) % slots {
		short, cancel := context.WithTimeout(ctx, slotPatience)
		release, err := quiet.Lock(short, fmt.Sprintf("vm-slot-%d", i))
		cancel()
		switch {
		case err == nil:
			return release, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("wait for room to boot a guest: %w", ctx.Err())
		case short.Err() == nil: // not a busy lock but a broken one
			return nil, err
		}
	}
}

// slots is how many guests may run at a time.
func slots(asked string, cpus int) (int, error) {
	if asked == "" {
		return max(1, cpus/cpusPerGuest), nil
	}
	n, err := strconv.Atoi(asked)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s is %q: want how many guests may run at a time", envGuests, asked)
	}
	return n, nil
}
