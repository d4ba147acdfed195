// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package logs

import (
	"sync"
	"time"
)

// Defaults of LimiterOptions.
const (
	DefaultEvery   = 5 * time.Minute
	DefaultMaxKeys = 4096
)

// LimiterOptions of NewLimiter.
type LimiterOptions struct {
	// Every is the shortest time between two messages of one (scope, key); default 5 minutes.
	Every time.Duration
	// MaxKeys bounds memory; default 4096 pairs. When all are fresh, unseen pairs share one allowance, so that a node
	// full of new hostile pods cannot flood the log either.
	MaxKeys int
	// Now is the clock, time.Now when nil.
	Now func() time.Time
}

// Limiter lets one message per (scope, key) through per interval. The scope is a pod's UID or a component, the key a
// label, an annotation or a knob. Safe for concurrent use.
type Limiter struct {
	o LimiterOptions

	mu    sync.Mutex
	seen  map[limitKey]*limitState
	other limitState
	// swept is when stale pairs were last dropped.
	swept time.Time
}

type limitKey struct{ scope, key string }

type limitState struct {
	last time.Time
	held uint64
}

// NewLimiter makes a limiter.
func NewLimiter(o LimiterOptions) *Limiter {
	if o.Every <= 0 {
		o.Every = DefaultEvery
	}
	if o.MaxKeys <= 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Limiter{o: o, seen: map[limitKey]*limitState{}}
}

// Allow reports whether to log now, and how many were held back since the last one that was let through.
func (l *Limiter) Allow(scope, key string) (ok bool, suppressed uint64) {
	now := l.o.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[limitKey{scope, key}]
	if s == nil {
		if len(l.seen) >= l.o.MaxKeys {
			l.sweep(now)
		}
		if len(l.seen) >= l.o.MaxKeys {
			return l.other.allow(now, l.o.Every)
		}
		s = &limitState{}
		l.seen[limitKey{scope, key}] = s
	}
	return s.allow(now, l.o.Every)
}

func (s *limitState) allow(now time.Time, every time.Duration) (bool, uint64) {
	if !s.last.IsZero() && now.Sub(s.last) < every {
		s.held++
		return false, 0
	}
	held := s.held
	s.last, s.held = now, 0
	return true, held
}

// sweep drops pairs whose interval has passed, at most once per tenth of it: a full map of fresh pairs must not cost a
// walk per message.
func (l *Limiter) sweep(now time.Time) {
	if !l.swept.IsZero() && now.Sub(l.swept) < l.o.Every/10 {
		return
	}
	l.swept = now
	for k, s := range l.seen {
		if now.Sub(s.last) >= l.o.Every {
			delete(l.seen, k)
		}
	}
}
