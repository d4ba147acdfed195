// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import "github.com/koord-rt/koord-rt/model/plan"

// Kept is how many files are counted as kept, and how many are.
func (a *Applier) Kept() (counted, open int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.targets {
		if t.kept.fd1 > 0 {
			open++
		}
	}
	return int(a.keptNow.Load()), open
}

// KeepMost sets how many files may be kept.
func (a *Applier) KeepMost(n int64) { a.keptMost.Store(n) }

// ReadyMost sets how many sessions may be ready.
func (a *Applier) ReadyMost(n int64) { a.readyMost.Store(n) }

// Sessions is how many sessions there have been at once; each is kept for the next.
func (a *Applier) Sessions() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.idle)
}

// DropKept has a target keep no file any more, until the next write.
func (a *Applier) DropKept(t plan.Target) {
	held := a.take(keyOf(t))
	defer held.mu.Unlock()
	a.unkeep(held).close()
}
