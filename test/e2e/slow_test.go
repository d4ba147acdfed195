// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// lifecycleStuck stops the process of the plugin while containerd lives. Below the runtime's limit nothing is lost; above it the
// runtime drops the plugin and goes on without it.
func lifecycleStuck(r *rig) {
	ctx := r.t.Context()
	r.up(standard, onlyEvents())                        // the next connection is what has them repaired
	connects := r.metric("koord_rt_nri_connects_total") // a starved runtime may have cut the first
	stuck := func(work func() error) {
		r.t.Helper()
		release := r.held()
		timer := time.AfterFunc(1500*time.Millisecond, release)
		defer timer.Stop()
		defer release()
		if err := work(); err != nil {
			r.t.Fatal(err)
		}
	}
	run, err := (*kubelet.Running)(nil), error(nil)
	stuck(func() error {
		run, err = r.kube.RunPod(ctx, bePod("stuck"))
		return err
	})
	r.cleanPod(run)
	stuck(func() error {
		_, err := r.kube.CreateContainer(ctx, run, "main")
		return err
	})
	stuck(func() error { return r.kube.StartContainer(ctx, run, "main") })
	r.now(run, wants("BE", ""))
	r.connectedTimes(connects)
	stuckDropped(r)
}

// stuckDropped keeps the plugin stopped until all is made: pods come up without it, and it repairs them when it goes on. What it
// finds of the old connection then is of a pod that has gone since, and must not keep the CPUs that this one claimed.
func stuckDropped(r *rig) {
	ctx := r.t.Context()
	_, rest := cpus()
	gone, err := r.kube.RunPod(ctx, lsrPod("stuck-gone"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.cleanPod(gone)
	release := r.held()
	if err := r.kube.StartContainer(ctx, gone, "main"); err != nil { // the request that the plugin reads when it goes on
		r.t.Fatalf("a container beside a stopped plugin: %v", err)
	}
	if err := r.kube.StopPod(ctx, gone); err != nil {
		r.t.Fatal(err)
	}
	r.eventually(5*time.Second, func() error {
		if n := r.connections(); n != 0 {
			return fmt.Errorf("containerd has %v plugins beside a stopped one, want none", n)
		}
		return nil
	})
	between := map[string]*kubelet.Running{"LS": r.pod(lsPod("stuck-ls")), "BE": r.pod(bePod("stuck-be"))}
	for kind, run := range between {
		if r.differs(run, wants(kind, "")) == nil {
			r.t.Errorf("%s has its values without the plugin: this test would show nothing", run.Pod.Name)
		}
		r.now(run, []string{"main @sched=0"}) // which is asked of its process, so there is one
	}
	r.standsStill()
	release()
	r.eventually(10*time.Second, func() error {
		if n := r.metric("koord_rt_nri_connects_total"); n < 2 {
			return fmt.Errorf("%v connections were made, want another one", n)
		}
		return nil
	})
	r.oneConnection()
	connects := r.metric("koord_rt_nri_connects_total") // 2, and more where one was lost while it was slow to register
	for kind, run := range between {
		r.soon(5*time.Second, run, wants(kind, ""))
	}
	r.eventually(5*time.Second, func() error {
		if n := r.metric("koord_rt_nri_claimed_cpus"); n != 0 {
			return fmt.Errorf("%v CPUs are claimed by a pod that has gone", n)
		}
		return nil
	})
	r.meantLate()
	after := r.pod(lsPod("unstuck"))
	r.now(after, wants("LS", ""))
	r.now(r.pod(lsrPod("unstuck-lsr")), wants("LSR", ""))
	for kind, run := range between {
		r.soon(5*time.Second, run, wants(kind, rest))
	}
	r.soon(5*time.Second, after, wants("LS", rest))
	r.connectedTimes(connects)
}

// standsStill fails unless the plugin's process is stopped.
func (r *rig) standsStill() {
	r.t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(r.plugin.Process.Pid) + "/stat")
	if err != nil || !strings.Contains(string(text), ") T ") {
		r.t.Errorf("the plugin is not stopped: %s %v", text, err)
	}
}

// held stops koord-nri's process until what it returns is called, or the test ends.
func (r *rig) held() (release func()) { return r.hold(r.plugin.Process) }

// hold stops a process as held does.
func (r *rig) hold(p *os.Process) (release func()) {
	r.t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		r.t.Fatal(err)
	}
	release = func() { _ = p.Signal(syscall.SIGCONT) } // it may be gone when the test has failed; a second one does nothing
	r.t.Cleanup(release)
	return release
}

// connectedTimes fails unless the plugin has made so many connections.
func (r *rig) connectedTimes(want float64) {
	r.t.Helper()
	if n := r.metric("koord_rt_nri_connects_total"); n != want {
		r.t.Errorf("%v connections were made, want %v", n, want)
	}
}

// lifecycleSlowKernel lets every write of the plugin into a cgroup hang, as beside a reclaim that does not end. Pods come up all
// the same, with what stands in the runtime's specification; the plugin answers in time and stays connected, and the rest follows
// when the kernel does.
func lifecycleSlowKernel(r *rig) {
	_, rest := cpus()
	r.gated = true
	r.up(standard, nil)
	connects := r.metric("koord_rt_nri_connects_total")
	first := r.pod(lsPod("slow-first"))
	r.now(first, wants("LS", ""))
	r.gate.Shut()
	r.t.Cleanup(r.gate.Open)
	pods := map[string]*kubelet.Running{"BE": r.pod(bePod("slow-be")), "LS": r.pod(lsPod("slow-ls")), "LSR": r.pod(lsrPod("slow-lsr"))}
	r.hangs()
	if r.differs(pods["BE"], wants("BE", rest)) == nil {
		r.t.Error("a pod has all of its values although no write goes through")
	}
	v1, v2 := []string{"main cpu.cfs_quota_us=50000", "main memory.limit_in_bytes=134217728"}, []string{"main cpu.max=50000 100000", "main memory.max=134217728"}
	r.now(pods["BE"], map[bool][]string{false: v1, true: v2}[r.tree.V2()])
	r.now(pods["BE"], []string{"main @oom=900"})
	last, _ := cpus()
	r.now(pods["LSR"], []string{"main cpuset.cpus=" + last})
	r.oneConnection()
	r.connectedTimes(connects)
	r.gate.Open()
	for kind, run := range pods {
		r.soon(10*time.Second, run, wants(kind, sharedOf(kind, rest)))
	}
	r.soon(10*time.Second, first, wants("LS", rest))
	r.meantLate()
	r.now(r.pod(bePod("slow-after")), wants("BE", rest))
	r.answersFirst(first)
	r.oneConnection()
	r.connectedTimes(connects)
}

// answersFirst: the runtime has its answer to an update while the kernel still takes the fall of the pod's burst, and writes the smaller quota
// meanwhile. Who waits for that with his answer is late, each time; who gets no CPU is so now and then.
func (r *rig) answersFirst(run *kubelet.Running) {
	r.t.Helper()
	late := func() float64 { return r.metric("koord_rt_nri_event_late_total", `"UpdateContainer"`) }
	update := func(quota int64) error {
		return r.host.CRI().UpdateContainer(r.t.Context(), run.Containers["main"], &runtimeapi.LinuxContainerResources{CpuQuota: quota, CpuPeriod: 100000})
	}
	burst, quota := "cpu.cfs_burst_us", "main cpu.cfs_quota_us=20000"
	if r.tree.V2() {
		burst, quota = "cpu.max.burst", "main cpu.max=20000 100000"
	}
	for range 3 {
		r.soon(10*time.Second, run, []string{"main " + burst + "=50000", "pod " + burst + "=50000"})
		// By a hand, so that of the two bursts that have to fall the pod's alone is left to be written.
		if err := cgroups.Write(r.kube.ContainerDir(run, "main", r.controller(burst)), burst, "20000"); err != nil {
			r.t.Fatal(err)
		}
		before, done := late(), make(chan error, 1)
		r.gate.Shut()
		go func() { done <- update(20000) }()
		r.soon(5*time.Second, run, []string{quota, "pod " + burst + "=50000"})
		r.hangs()
		r.gate.Open()
		if err := <-done; err != nil {
			r.t.Fatal(err)
		}
		if late() == before {
			return
		}
		if err := update(50000); err != nil {
			r.t.Fatal(err)
		}
	}
	r.t.Error("three times koord-nri has answered an update too late, beside a write to the pod's cgroup that hung")
}

// TestHostShippedDeadlines is the same with the limits that both come with: containerd drops a plugin after 2 s, and koord-nri has
// answered after one. It comes when nothing else takes the CPUs.
func TestHostShippedDeadlines(t *testing.T) {
	lifecycleSlowKernel(newRig(t, rigOptions{shipped: true}))
}

// hangs waits until a write stands before the gate.
func (r *rig) hangs() {
	r.t.Helper()
	r.eventually(5*time.Second, func() error {
		if r.gate.Waiting() == 0 {
			return errors.New("no write has hung")
		}
		return nil
	})
}

// sharedOf is what the exclusive pods leave, for a kind of pod that has to live with it.
func sharedOf(kind, rest string) string {
	if kind == "LSR" {
		return ""
	}
	return rest
}
