// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestJobsWaitForALull(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		added, ran []time.Duration // since the start
		call       []time.Duration // under way from, and until
	}{
		"one waits a lull":                        {ms(0), ms(10), nil},
		"both calls of a pod's start, one run":    {ms(0, 6), ms(16, 16), nil},
		"after a lull, the next run":              {ms(0, 30), ms(10, 40), nil},
		"a steady stream is not put off for ever": {ms(0, 8, 16, 24, 32, 40, 48, 56), ms(50, 50, 50, 50, 50, 50, 50, 66), nil},
		"a call is not disturbed":                 {ms(0, 6), ms(35, 35), ms(6, 25)},
		"one that begins later neither":           {ms(0), ms(40), ms(8, 30)},
		"the answer begins the lull anew":         {ms(0, 30), ms(13, 40), ms(2, 3)},
		"a call without end is disturbed":         {ms(0, 51), ms(50, 101), ms(1, 200)},
		"a wake that is left opens no window":     {ms(1005), ms(1055), ms(1006, 2000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				j, start := newJobs(), time.Now()
				var ran []time.Duration
				done := make(chan struct{})
				go func() {
					defer close(done)
					j.run(ctx, func() pace { return pace{giveWay: func() {}} }, func(ctx context.Context, f func(context.Context)) { f(ctx) }, func() {})
				}()
				synctest.Wait()
				if tc.call != nil {
					for i, n := range []int{1, -1} {
						time.AfterFunc(tc.call[i], func() { j.call(n) })
					}
				}
				time.AfterFunc(time.Second, j.rouse) // of a job that was taken already
				for _, at := range tc.added {
					time.Sleep(at - time.Since(start))
					j.add(func(context.Context) { ran = append(ran, time.Since(start)) })
				}
				time.Sleep(longest + lull)
				cancel()
				<-done
				if !slices.Equal(ran, tc.ran) {
					t.Errorf("ran at %v, want %v", ran, tc.ran)
				}
			})
		})
	}
}

func ms(n ...int) (out []time.Duration) {
	for _, v := range n {
		out = append(out, time.Duration(v)*time.Millisecond)
	}
	return out
}
