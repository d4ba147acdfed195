// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vm

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

const (
	// cpusPerGuest is how many of the host's CPUs a guest of 8 emulated ones should find beside whatever else runs; with less, guests
	// that run side by side (packages under go test do) see stalls that look like bugs.
	cpusPerGuest = 4
	// slotPatience is how long one slot is tried before the next.
	slotPatience = 300 * time.Millisecond
)

// takeSlot waits until the host has room for one more guest, across all processes that share the cache.
func takeSlot(ctx context.Context, root string) (release func(), err error) {
	quiet, err := parts.Open(parts.Options{Root: root}) // no progress lines: each try would write one
	if err != nil {
		return nil, err
	}
	slots := slots(runtime.NumCPU())
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
func slots(cpus int) int { return max(1, cpus/cpusPerGuest) }
