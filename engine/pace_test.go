// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// Work in the background does not begin while somebody serves a call, unless the call does not end: what is left behind a reply, and each stint of a
// loop.
func TestWorkGivesWay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, until time.Duration // of the call
		behind      time.Duration // when work behind a reply begins
		steps       [3]time.Duration
	}{
		"nothing is served":         {time.Hour, time.Hour, rest, [3]time.Duration{0, 0, stint + rest}},
		"a call that ends":          {0, rest + rest/2, 2 * rest, [3]time.Duration{2 * rest, 2 * rest, 3*rest + stint}},
		"a call that does not end":  {0, time.Hour, rest + yields*rest, [3]time.Duration{yields * rest, yields * rest, yields*rest + stint + rest + yields*rest}},
		"a call in a stint's midst": {1, 2, rest, [3]time.Duration{0, 0, stint + rest}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &Engine{}
				defer g.crew.dismiss()
				defer g.watch.end()
				start := time.Now()
				serve := time.AfterFunc(tc.from, func() {
					call := g.watch.begin(2 * time.Hour)
					time.AfterFunc(tc.until-tc.from, func() {
						call.leave(finished)
						g.watch.finish(call)
					})
				})
				defer serve.Stop()
				synctest.Wait()
				var began time.Duration
				g.behind(func() { began = time.Since(start) })
				var steps [3]time.Duration
				p := g.pace()
				for i := range steps {
					if i == len(steps)-1 {
						time.Sleep(stint)
					}
					p.step()
					steps[i] = time.Since(start)
				}
				time.Sleep(10 * rest)
				synctest.Wait()
				if began != tc.behind || steps != tc.steps {
					t.Errorf("work behind a reply after %s, want %s; steps after %v, want %v", began, tc.behind, steps, tc.steps)
				}
			})
		})
	}
}
