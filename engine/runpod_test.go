// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// A pod's first container is often decided before the jobs take the pod in, and it must not look the pod's quota up: the files
// are open while the jobs still wait. They are let go with the pod, however early it is removed.
func TestQuotaHeldBeforeTheJobs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, file := range []string{"cpu.cfs_quota_us", "cpu.cfs_period_us"} {
		must(t, os.MkdirAll(filepath.Join(dir, "pod"), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "pod", file), []byte("100000\n"), 0o600))
	}
	r := newRig(t, 0, func(o *engine.Options) { o.Live = &engine.Live{CPUDir: dir} })
	jobs := make(chan struct{})
	release := sync.OnceFunc(func() { close(jobs) })
	t.Cleanup(release)
	named := func(id, cgroup string, read func()) engine.Sandbox {
		return engine.Sandbox{ID: id, Read: func() *workload.Pod {
			read()
			return &workload.Pod{ID: id, UID: id, Namespace: "default", Name: id, Cgroup: cgroup}
		}}
	}
	r.RunPodLater(named("slow", "", func() { <-jobs }))
	r.RunPodLater(named("pod", "/pod", func() {}))
	r.RemovePod("pod")
	enginetest.Eventually(t, "the pod's quota is held", func() bool { return r.Holds("/pod") })
	release() // the jobs have waited for what reads the first pod
	enginetest.Eventually(t, "the removed pod's quota is let go", func() bool { return !r.Holds("/pod") })
	if n := r.Status().Counters["pods"]; n != 1 {
		t.Errorf("%d pods are known, and one was not removed", n)
	}
}

// A pod is known behind the reply, while the jobs still wait. One that is removed before its job comes does not come back with it.
func TestPodKnownBeforeTheJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	jobs := make(chan struct{})
	release := sync.OnceFunc(func() { close(jobs) })
	t.Cleanup(release)
	sandbox := func(id string, read func()) engine.Sandbox {
		return engine.Sandbox{ID: id, Read: func() *workload.Pod {
			read()
			return &workload.Pod{ID: id, UID: id, Namespace: "default", Name: id}
		}}
	}
	known := func(want uint64) {
		t.Helper()
		enginetest.Eventually(t, "pods are known", func() bool { return r.Status().Counters["pods"] == want })
	}
	r.RunPodLater(sandbox("slow", func() { <-jobs }))
	r.RunPodLater(sandbox("stays", func() {}))
	r.RunPodLater(sandbox("goes", func() {}))
	known(2)
	r.RemovePod("goes")
	known(1)
	release()
	known(2)
	done := make(chan struct{})
	r.Later(func() { close(done) })
	<-done
	if n := r.Status().Counters["pods"]; n != 2 {
		t.Errorf("%d pods are known after all jobs", n)
	}
}

// Who reads a pod that its first container has made known meanwhile may put it back after its removal: the removal's job takes it away again.
func TestPodPutBackAfterItsRemoval(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	gate, begun := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release)
	var reads atomic.Int32
	sandbox := engine.Sandbox{ID: "pod", Read: func() *workload.Pod {
		if reads.Add(1) == 1 {
			close(begun)
			<-gate
		}
		return &workload.Pod{ID: "pod", UID: "pod", Namespace: "default", Name: "pod"}
	}}
	r.RunPodLater(sandbox)
	<-begun
	must(t, r.Create(t.Context(), sandbox, container(), func(_ *node.View, spec plan.Plan) plan.Plan { return spec }))
	r.RemovePod("pod")
	if n := r.Status().Counters["pods"]; n != 0 {
		t.Fatalf("%d pods are known after the removal", n)
	}
	release()
	done := make(chan struct{})
	r.Later(func() { close(done) })
	<-done
	if n := r.Status().Counters["pods"]; n != 0 {
		t.Errorf("%d pods are known after all jobs", n)
	}
}
