// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// late: a change that has not come to the kernel is not said to be in force, however soon koordlet has made it its own. koord-nri, which writes the
// values of pods, stands still for three of koordlet's looks, which is half of the time after which koordlet would write them itself.
func (m *managed) late(t *testing.T) {
	const still = 6 * time.Second
	goOn := hang(t, m.nri.cmd.Process.Pid)
	defer goOn()
	m.tell(t, map[string]string{keyBurst: burstConfig(50)})
	isNew := func(o cluster.Object) bool { return o.Int("spec", "cpuBurstStrategy", "cpuBurstPercent") == 50 }
	m.slo(t, 60*time.Second, "NodeSLO with half the burst", isNew)
	for begun := time.Now(); time.Since(begun) < still; time.Sleep(100 * time.Millisecond) {
		got := m.slo(t, 10*time.Second, "NodeSLO", isNew)
		if err := m.held(m.ls, "cpu", "cpu.cfs_burst_us=5000", "cpu.max.burst=5000"); err != nil && got.InForce() {
			t.Fatalf("the status says that generation %d is in force: %v", got.Int("metadata", "generation"), err)
		}
	}
	goOn()
	m.holds(t, m.ls, "cpu", "cpu.cfs_burst_us=5000", "cpu.max.burst=5000")
	m.inForce(t)
	m.tell(t, map[string]string{keyBurst: burstConfig(1000)})
	m.holds(t, m.ls, "cpu", "cpu.cfs_burst_us=10000", "cpu.max.burst=10000")
}
