// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"sync"
	"sync/atomic"
)

// Store holds the strategy in force. The zero value is ready; it is safe for concurrent use.
type Store struct {
	now atomic.Pointer[Config]

	mu   sync.Mutex
	wake []chan struct{}
}

// Load is the strategy in force, nil until the cluster's has been read once: who decides by it does nothing then, and is woken.
func (s *Store) Load() *Config { return s.now.Load() }

// Set puts c in force and wakes the subscribers.
func (s *Store) Set(c *Config) {
	s.now.Store(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.wake {
		select {
		case w <- struct{}{}:
		default: // it has not yet looked at the one before
		}
	}
}

// Subscribe returns a channel that holds one value whenever there is a strategy that its reader has not seen, the present one
// included.
func (s *Store) Subscribe() <-chan struct{} {
	w := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake = append(s.wake, w)
	if s.Load() != nil {
		w <- struct{}{}
	}
	return w
}
