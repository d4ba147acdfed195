// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// starvedOfCPU: two processes of a best-effort pod that have one CPU wait for it half of the time each, so that one always waits. koordlet
// decides that the pod must leave, by what the kernel counts.
func starvedOfCPU(l *loops) {
	const above = 40
	begun := time.Now()
	l.put(strings.TrimSuffix(disturbs, "}\n") + ", cpuEvictTimeWindowSeconds: 6, cpuEvictPSIThresholdPercent: " + strconv.Itoa(above) + "}\n")
	l.ticks(8, func() error { return l.nobodyLeaves(begun) })
	waits, stop := l.waits(l.be, "cpu.pressure"), []func(){l.spin(l.be, 7), l.spin(l.be, 7)}
	why := l.leaves(begun, l.be, "BECPUEvict", "wait for a CPU")
	if waits.end(); waits.part*100 < above {
		l.t.Errorf("%s waits %s: %+v", l.be.Pod.Name, waits, why)
	}
	for _, end := range stop {
		end()
	}
	l.tell("starved: %s waits for a CPU %s of the time: %s is %s by %s: %s", l.be.Pod.Name, waits, why.Target.Name, why.Want, why.Owner, why.Reason)
}

// fullOfMemory: close below the threshold of evictions best effort's page cache is reclaimed, and nobody is to leave. When the other pod takes
// more than is left, best effort is to leave for what it cannot give back; the other keeps all that it has.
func fullOfMemory(l *loops) {
	const anonymous = 24 * mib
	begun := time.Now()
	l.cached(l.be, 96*mib)
	rest := l.hog(l.be, anonymous)
	percent := l.a.usedPercent
	l.ticks(2, quietly) // the figure is of now
	near, filled := percent(), l.current(l.be)
	threshold := int(near + 4)
	l.put(fmt.Sprintf("resourceQOSStrategy: {beClass: {memoryQOS: {enable: true, wmarkRatio: 0}}}\n"+
		"resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota, cpuSuppressThresholdPercent: 100, memoryEvictThresholdPercent: %d}\n", threshold))
	reclaimed := l.within(20*time.Second, "memory.current of best effort on a tight node", anonymous, anonymous+36*mib, func() (int, error) { return l.current(l.be), nil })
	if err := l.nobodyLeaves(begun); err != nil {
		l.t.Error(err)
	}
	// Well above the threshold: meanwhile best effort may give a point or two more.
	size := int((float64(threshold) + 4 - percent()) / 100 * float64(l.memTotal()))
	stop := l.hog(l.ls, size)
	why := l.leaves(begun, l.be, "BEMemoryEvict", "")
	if err := l.kept(l.ls, size); err != nil {
		l.t.Error(err)
	}
	for _, run := range []*kubelet.Running{l.be, l.ls} {
		if n := event(l.file(l.dir(run), "memory.events"), "oom_kill"); n != 0 {
			l.t.Errorf("%s: %d processes were killed", run.Pod.Name, n)
		}
	}
	l.tell("full: node at %.1f %%, threshold %d %%: memory.current of %s %d → %d, nobody is to leave; %s took %d, and has %d: %s is %s by %s: %s", near, threshold,
		l.be.Pod.Name, filled, reclaimed, l.ls.Pod.Name, size, l.current(l.ls), why.Target.Name, why.Want, why.Owner, why.Reason)
	stop()
	rest()
}

// leave are the evictions that koordlet has decided since then.
func (l *loops) leave(since time.Time) ([]journal.Record, error) {
	return l.a.events(since, func(r *journal.Record) bool { return r.Knob == "eviction" })
}

// nobodyLeaves is an error when one was decided.
func (l *loops) nobodyLeaves(since time.Time) error {
	list, err := l.leave(since)
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("%s is to leave: %s", list[0].Target.Name, list[0].Reason)
	}
	return err
}

// leaves waits until koordlet decides that a pod, and nobody else, must leave. Here is no API server to ask, so that is all.
func (l *loops) leaves(since time.Time, run *kubelet.Running, feature, reason string) (why journal.Record) {
	l.t.Helper()
	l.eventually(30*time.Second, func() error {
		list, err := l.leave(since)
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("%s is not to leave", run.Pod.Name)
		}
		if err == nil {
			why = list[0]
		}
		return err
	})
	l.ticks(2, quietly)
	list, err := l.leave(since)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, why := range list {
		if why.Owner != feature || why.Target.Pod != run.Pod.UID || why.Want != "observed" || !strings.Contains(why.Reason, reason) {
			l.t.Errorf("decided is %+v, want %s of %s", why, feature, run.Pod.Name)
		}
	}
	return why
}
