// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// lifecycleAway makes pods while nobody is there. They are found, counted and brought to their plan.
func lifecycleAway(r *rig) {
	_, rest := cpus()
	ls, be, lsr := r.pod(lsPod("away-ls")), r.pod(bePod("away-be")), r.pod(lsrPod("away-lsr"))
	if r.differs(be, wants("BE", "")) == nil {
		r.t.Fatal("the values stand without the plugin: this test would show nothing")
	}
	r.up(standard, onlyEvents()) // the list of the runtime is what has them repaired
	r.soon(5*time.Second, lsr, wants("LSR", ""))
	r.soon(5*time.Second, ls, wants("LS", rest))
	r.soon(5*time.Second, be, wants("BE", rest))
	r.eventually(5*time.Second, func() error {
		n, failed := r.metric("koord_rt_nri_unmanaged_containers"), r.metric("koord_rt_nri_fail_open_total", `reason="unmanaged"`)
		if n != 3 || failed != 3 {
			return fmt.Errorf("%v unmanaged containers, %v counted as fail-open, want 3", n, failed)
		}
		return nil
	})
	// What is made from now on is managed, and respects the CPUs that the plugin has only read.
	r.now(r.pod(lsPod("away-after")), wants("LS", rest))
}

// lifecycleWhileSynchronizing makes containers around the moment at which the plugin joins: created before and started
// after, and whole pods during it. The runtime does not tell of all of them.
func lifecycleWhileSynchronizing(r *rig) {
	_, rest := cpus()
	neighbour, own := r.pod(lsPod("sync-neighbour")), r.created(lsrPod("sync-own"))
	waiting := r.created(bePod("sync-created"))
	r.up(standard, onlyEvents()) // the searches after Synchronize find whom the runtime does not tell of
	if err := r.kube.StartContainer(r.t.Context(), own, "main"); err != nil {
		r.t.Fatal(err)
	}
	r.now(own, wants("LSR", ""))
	r.soon(2*time.Second, neighbour, wants("LS", rest))
	if err := r.kube.StartContainer(r.t.Context(), waiting, "main"); err != nil {
		r.t.Fatal(err)
	}
	r.now(waiting, []string{"main @sched=5"})
	r.soon(5*time.Second, waiting, wants("BE", rest))

	pods := map[string]*kubelet.Running{}
	for i := range rounds(3) {
		r.stop(syscall.SIGKILL)
		l := r.load("sync"+strconv.Itoa(i), 3)
		r.eventually(time.Minute, func() error { return l.made(2) }) // an emulated machine is slow
		r.again()
		r.eventually(time.Minute, func() error { return l.made(6) })
		for name, run := range l.end(r) {
			pods[name] = run
			r.soon(5*time.Second, run, wants(kindOf(name), rest))
		}
	}
	r.t.Logf("%d pods around %d joins", len(pods), rounds(3))
}

// made waits for a number of pods.
func (l *load) made(n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pods)+len(l.errs) < n {
		return fmt.Errorf("%d pods so far", len(l.pods))
	}
	return nil
}
