// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/model/workload"
)

// What somebody else has written over stands until the next check, which comes as often as the configuration says.
func TestDriftIntervalIsConfigured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, func(o *engine.Options) { o.Drift, o.Config.DriftInterval = 0, config.Duration(time.Minute) })
		pod, c := neighbour(t, r, "web")
		r.Add([]*workload.Pod{pod}, []engine.Listed{c})
		stands := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := r.tree.Get(t, pod.Cgroup+"/c", "cpu.max.burst"); got != want {
				t.Errorf("the burst is %s, want %s", got, want)
			}
		}
		stands(time.Second, "200000")
		r.tree.Set(t, pod.Cgroup+"/c", "cpu.max.burst", "7")
		stands(58*time.Second, "7")
		stands(2*time.Second, "200000")
	})
}
