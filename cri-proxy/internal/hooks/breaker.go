// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks

import (
	"sync"
	"time"
)

const (
	// maxHangs is after how many calls in a row without an answer in time a server is left alone.
	maxHangs = 3
	// defaultPause is for how long; then one call tries it again.
	defaultPause = 30 * time.Second
)

// breaker leaves a server alone that hangs: one whose failures are to be ignored must not cost every container its time.
// Servers with policy Fail are called each time, for their calls are refused otherwise.
type breaker struct {
	mu    sync.Mutex
	hangs int       // in a row
	until time.Time // when it may be tried again; set from maxHangs on
	trial bool      // a call is trying it
}

// allow reports whether the server is to be called now. A call that is allowed is followed by answered, hung or cut.
func (b *breaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hangs < maxHangs {
		return true
	}
	if b.trial || now.Before(b.until) {
		return false
	}
	b.trial = true
	return true
}

// answered takes any answer in time, an error too; back is true when the server had been left alone.
func (b *breaker) answered() (back bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	back = b.hangs >= maxHangs
	b.hangs, b.trial = 0, false
	return back
}

// hung takes a call without an answer in time; alone is true when the server is left alone from now on.
func (b *breaker) hung(now time.Time, pause time.Duration) (alone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hangs++
	if b.hangs < maxHangs || b.hangs > maxHangs && !b.trial {
		return false // of those that were under way together the third counts
	}
	b.trial, b.until = false, now.Add(pause)
	return true
}

// cut takes a call that ended before its server could be blamed.
func (b *breaker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trial = false
}
