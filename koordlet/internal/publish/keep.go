// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package publish

import (
	"fmt"
	"time"

	"github.com/koord-rt/koord-rt/daemon/handoff"
)

const (
	// keepAgain is the time between two tries to keep what a full disk has not taken, and how long a disk may take before that is told.
	keepAgain = 10 * time.Second
	// keepAtEnd bounds the wait of Close: what the disk has not taken by then the next life owes.
	keepAtEnd = 2 * time.Second
)

// keeper writes the strategy's copy for the next boot beside who publishes, one at a time: the state directory is a disk, which may hang, and
// the loops with it.
type keeper struct {
	write func(*handoff.Copy) error
	// ended is closed when the write under way, of copy, has ended with err; nil while there is none. It began at triedAt, or the last one did.
	ended   chan struct{}
	copy    *handoff.Copy
	err     error
	triedAt time.Time
	// unkept is why the last write failed, nil when it did not.
	unkept error
}

// begin starts a write.
func (k *keeper) begin(c *handoff.Copy, now time.Time) {
	ended := make(chan struct{})
	k.ended, k.copy, k.triedAt = ended, c, now
	go func() {
		defer close(ended)
		k.err = k.write(c)
	}()
}

// Keep tells why the next boot would not know the strategy, and has its copy written where that is owed, beside the caller, again now and
// then; nil when it would, or is about to.
func (p *Publisher) Keep(now time.Time) error {
	if p.w == nil {
		return nil // nothing was published
	}
	k := &p.copies
	select {
	case <-k.ended: // never, where there is none
		p.w.Kept(k.copy, k.err)
		k.ended, k.unkept = nil, k.err
	default:
	}
	since := now.Sub(k.triedAt).Abs()
	if k.ended != nil {
		if since >= keepAgain {
			return fmt.Errorf("%w: the disk has been taking %s since %s", handoff.ErrNotKept, k.copy.Path(), k.triedAt.Format(time.RFC3339))
		}
		return k.unkept
	}
	switch c := p.w.Owed(); {
	case c == nil:
		k.unkept = nil
	case k.unkept == nil || since >= keepAgain:
		k.begin(c, now)
	}
	return k.unkept
}

// Close waits a moment for a copy that is being written, and for the one that is owed then: of two strategies in a row the second.
func (p *Publisher) Close(now time.Time) {
	over := time.After(keepAtEnd)
	for range 2 {
		if p.copies.ended != nil {
			select {
			case <-p.copies.ended:
			case <-over:
				return
			}
		}
		_ = p.Keep(now) // the next life is told
	}
}
