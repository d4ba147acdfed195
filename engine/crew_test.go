// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What is left behind a reply rests first, since the runtime may be on our processor. An end waits for it, and not for what hangs.
func TestBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c crew
		defer c.dismiss()
		var began atomic.Bool
		hang := make(chan struct{})
		c.behind(func() { began.Store(true) })
		time.Sleep(rest - 1)
		if synctest.Wait(); began.Load() {
			t.Error("it begins at once")
		}
		start := time.Now()
		if c.rested(); !began.Load() || time.Since(start) != 1 {
			t.Errorf("the end comes %v later; done: %t", time.Since(start), began.Load())
		}
		c.behind(func() { <-hang })
		if c.rested(); time.Since(start) != longest+1 {
			t.Errorf("who hangs is waited for until %v", time.Since(start))
		}
		close(hang)
	})
}
