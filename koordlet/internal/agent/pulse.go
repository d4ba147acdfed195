// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/publish"
)

const (
	// hungAfter is far longer than any step takes, and short enough to be told while what was handed on still holds.
	hungAfter = publish.TTL / 2
	// deadAfter is long enough for a kernel or a disk that hangs to go on by itself: a start anew mends neither, and cannot even end a process
	// that waits in one, but it mends a fault of ours.
	deadAfter = 5 * time.Minute
)

// pulse is when the step began that is under way, nil between two.
type pulse struct{ since atomic.Pointer[time.Time] }

func (p *pulse) beat(now time.Time) { p.since.Store(&now) }

func (p *pulse) rest() { p.since.Store(nil) }

// stuck says since when one step has been under way at now, where that is longer than after.
func (p *pulse) stuck(now time.Time, after time.Duration) error {
	since := p.since.Load()
	if since == nil || now.Sub(*since) <= after {
		return nil
	}
	return fmt.Errorf("the loops have not gone on since %s: nothing is measured or decided", since.Format(time.RFC3339))
}

// Hung is why the loops do not go on, and the last Look says nothing about now; nil while they do.
func (a *Agent) Hung(now time.Time) error { return a.pulse.stuck(now, hungAfter) }

// Dead is Hung once that has lasted so long that it is better to start anew.
func (a *Agent) Dead(now time.Time) error { return a.pulse.stuck(now, deadAfter) }
