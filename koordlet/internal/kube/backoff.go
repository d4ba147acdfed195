// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// backoff spaces attempts: each wait is drawn from the upper half of a span that doubles from min to max, so that the
// nodes of a cluster do not come back in step.
type backoff struct {
	min, max time.Duration
	span     time.Duration
}

// reset begins anew after a success.
func (b *backoff) reset() { b.span = 0 }

// ease shortens what follows: whoever is waited for is back, and not yet ready. It is not reset, so that somebody who comes and goes for ever
// is not asked all the time.
func (b *backoff) ease() { b.span = min(b.span, 4*b.min) }

// next is the next wait; what the server asked for counts if it is longer.
func (b *backoff) next(err error) time.Duration {
	b.span = min(max(2*b.span, b.min), b.max)
	wait := b.span/2 + time.Duration(rand.Int64N(int64(b.span)/2+1))
	var answer *Error
	if errors.As(err, &answer) {
		wait = max(wait, answer.RetryAfter)
	}
	return wait
}

// sleep waits, or ends early with ctx; false then.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
