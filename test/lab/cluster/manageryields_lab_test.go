// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// tally is what the kernel has counted until now: the CPU time of a best-effort pod, the periods of its class' quota and in how many it
// stopped the class, and how long the pod's CPUs had nothing to do.
type tally struct {
	at                 time.Time
	quota              time.Duration // of the class in a period
	used, idle         time.Duration
	periods, throttled int64
}

func (m *managed) tally(t *testing.T, pod cluster.Object, cpus []int) tally {
	t.Helper()
	used := m.cpuTime(t, pod)
	quota, err := m.quota()
	if err != nil || quota < 0 {
		t.Fatalf("quota of the best-effort class under load: %d, %v", quota, err)
	}
	class := cpuStat(t, m.class())
	at := time.Now()
	idle, err := cgroups.IdleTime(cpus)
	if err != nil {
		t.Fatal(err)
	}
	return tally{
		at: at, quota: time.Duration(quota) * time.Microsecond, used: used, idle: idle,
		periods: class["nr_periods"], throttled: class["nr_throttled"],
	}
}

const (
	// computes is for how long the profile's pod computes: not longer, because reports are averages of a minute.
	computes = 5 * time.Second
	// unseen is the least between two changes of the quota: koordlet decides once a second, and when pressure calls.
	unseen = 500 * time.Millisecond
)

// yields: under load the profile's pod would take every CPU but that of the load, and gets no more than what the kernel has filled the quota of its class
// with: once a period, and when it was written. For that the class is stopped, unless others leave the pod less: then its CPUs are never idle. Where it
// has got more it is looked at for longer: a CPU that a hypervisor has taken away for a while may count as used, which later periods make up for.
func (m *managed) yields(t *testing.T, pod cluster.Object) {
	t.Helper()
	var cpus []int
	var stops []func()
	for cpu := range runtime.NumCPU() {
		if cpu != quiet {
			cpus = append(cpus, cpu)
			stops = append(stops, m.spinIn(t, pod, cpu))
		}
	}
	step := time.Duration(runtime.NumCPU()) * 10 * time.Millisecond // the quota grows by a tenth of the node at a time, at most
	first := m.tally(t, pod, cpus)
	used := m.cpuTime(t, pod) // once more, since periods count from before it
	last, least, seconds := first, first.quota, cgroups.FilledOnce(first.quota.Seconds(), len(cpus))
	var passed, got, filled time.Duration
	eventually(t, 60*time.Second, func() error {
		now := m.tally(t, pod, cpus)
		seconds += cgroups.Quota{
			Before: last.quota.Seconds(), Now: now.quota.Seconds(), Periods: float64(now.periods - last.periods),
			Missed: int(now.at.Sub(last.at) / unseen), // none, but where this test got no CPU
			Growth: step.Seconds(), CPUs: len(cpus),
		}.Filled()
		filled = time.Duration(seconds * float64(time.Second)).Round(time.Microsecond) // as exact as a quota is written
		last, least = now, min(least, now.quota)
		passed, got = now.at.Sub(first.at), now.used-used
		switch idle := now.idle - first.idle; {
		case passed < computes:
			return fmt.Errorf("looked at for %s", passed)
		case got > filled:
			return fmt.Errorf("batch/spark has got %s of CPU in %s, and the quota of its class was filled with %s", got, passed, filled)
		case now.throttled == first.throttled && 10*idle > time.Duration(len(stops))*passed:
			return fmt.Errorf("the best-effort class was never stopped in %s, and the CPUs of batch/spark were idle for %s", passed, idle)
		}
		return nil
	})
	for _, stop := range stops {
		stop()
	}
	t.Logf("under load batch/spark got %s of CPU in %s, of %s at most, by a quota of %s at the least; stopped in %d of %d periods",
		got, passed, filled, least, last.throttled-first.throttled, last.periods-first.periods)
}

// cpuTime is what a pod has used, as the kernel counts it.
func (n *governed) cpuTime(t *testing.T, pod cluster.Object) time.Duration {
	t.Helper()
	used, err := n.tree.CPUTime(n.podDir(pod, "cpuacct"))
	if err != nil {
		t.Fatalf("%s: %v", pod.Str("metadata", "name"), err)
	}
	return used
}

// cpuStat are the figures of a control group's cpu.stat: "nr_periods 42".
func cpuStat(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	text, err := cgroups.Read(dir, "cpu.stat")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatalf("cpu.stat of %s: %q: %v", dir, line, err)
		}
		out[name] = n
	}
	return out
}
