// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// overdue: a pod that does not end when it is told to is evicted while its kubelet is down, and then the API server is away too: nobody
// ends it. By default koordlet has the runtime kill its containers when its time is over, for as long as memory is in danger, and only
// because its eviction was accepted. The kubelet finds them ended when it is back, and the pod goes.
func (n *governed) overdue(t *testing.T) {
	available, back := n.ownMemory(t, `"evict":{"stopContainers":"evicted"}`)
	n.patch(t, threshold(map[string]any{"enable": true, "memoryEvictThresholdPercent": 90, "memoryEvictLowerPercent": 89}))
	n.inForce(t)
	n.make(t, "stubborn", map[string]any{"labels": map[string]any{"koordinator.sh/qosClass": "BE"}}, map[string]any{"priorityClassName": "batch-low"},
		`trap "" TERM; dd if=/dev/zero bs=64M count=1 | sleep 2147483647`)
	pod, before := n.ready(t, "stubborn"), restarts(n.ready(t, "ls"))
	n.sees(t, `koord_rt_koordlet_pod_memory_bytes\{[^}]*pod_name="stubborn"[^}]*\} .*`)
	container := filepath.Join(n.podDir(pod, "cpu"), idOf(pod))
	eventually(t, time.Minute, func() error { // a shell of the best-effort tier takes its time to start what it is told to
		if pids := cgroups.Pids(container); len(pids) < 2 {
			return fmt.Errorf("%s has processes %v, want the shell and its sleep", container, pids)
		}
		return nil
	})
	starts := n.kubeletEnds(t)
	since := time.Now()
	available(0.02)
	n.wait(t, "stubborn", "deleted", func(p cluster.Object) bool { return p.Str("metadata", "deletionTimestamp") != "" })
	n.ticksTo(t, n.ticked(t)+2) // koordlet has heard of it, and its time is not over yet
	followed := n.podWatches(t, "ResponseStarted")
	n.serverEnds(t)
	n.step(t, since, "stubborn", "overdue")
	n.step(t, since, "stubborn", "stopped")
	if pids := cgroups.Pids(container); len(pids) > 0 {
		t.Errorf("koordlet says that the containers are stopped, and the kernel has processes %v in %s", pids, container)
	}
	if len(cgroups.Pids(filepath.Join(n.podDir(n.ls, "cpu"), idOf(n.ls)))) == 0 {
		t.Error("the LS pod has no process")
	}
	n.serverStarts(t)
	if p, err := n.c.Admin().Get(t.Context(), batchPods+"stubborn"); err != nil || p.Str("metadata", "uid") != pod.Str("metadata", "uid") {
		t.Errorf("somebody else has ended the pod: %v, %v", p, err)
	}
	available(0.5)
	n.podsFollowed(t, followed)
	starts()
	n.gone(t, "stubborn")
	n.step(t, since, "stubborn", "gone")
	n.untouched(t, "ls")
	if count := restarts(n.ready(t, "ls")); count != before {
		t.Errorf("ls: %d restarts, before %d", count, before)
	}
	n.patch(t, threshold(map[string]any{"enable": nil, "memoryEvictThresholdPercent": nil, "memoryEvictLowerPercent": nil}))
	n.inForce(t)
	back()
	n.up(t)
}

// step waits for a step of the eviction of a pod, by koordlet's own audit.
func (n *governed) step(t *testing.T, since time.Time, pod, what string) {
	t.Helper()
	eventually(t, 60*time.Second, func() error {
		list, err := n.evictions(t, since)
		if err == nil && !slices.ContainsFunc(list, func(e audited) bool { return e.Target.Name == "batch/"+pod && e.Want == what }) {
			err = fmt.Errorf("%s is not %s: %+v", pod, what, list)
		}
		return err
	})
}
