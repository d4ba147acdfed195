// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/scenario"
)

// limited is an LS pod's resources with another limit.
func limited(cpu, memory kubelet.Quantity) kubelet.Resources {
	return kubelet.Resources{
		Requests: map[string]kubelet.Quantity{"cpu": "200m", "memory": "64Mi"},
		Limits:   map[string]kubelet.Quantity{"cpu": cpu, "memory": memory},
	}
}

// quotaWants are quota and burst, equal here, of container and pod, and the container's memory limit.
func quotaWants(quota, memory int) []string {
	n := strconv.Itoa(quota)
	if cgroupV2() {
		return []string{"main cpu.max=" + n + " 100000", "main memory.max=" + strconv.Itoa(memory), "main cpu.max.burst=" + n,
			"pod cpu.max=" + n + " 100000", "pod cpu.max.burst=" + n}
	}
	return []string{"main cpu.cfs_quota_us=" + n, "main memory.limit_in_bytes=" + strconv.Itoa(memory), "main cpu.cfs_burst_us=" + n,
		"pod cpu.cfs_quota_us=" + n, "pod cpu.cfs_burst_us=" + n}
}

// resizeMain resizes a pod's container.
func (r *rig) resizeMain(run *kubelet.Running, res kubelet.Resources) error {
	r.t.Helper()
	return r.resizing(run, func() error { return r.kube.ResizeContainer(r.t.Context(), run, "main", res) })
}

// resizing is a resize of the kubelet's. The kernel refuses a quota below the burst that stands, which somebody who was late has not
// lowered in time: then the kubelet asks again after a while.
func (r *rig) resizing(run *kubelet.Running, resize func() error) error {
	r.t.Helper()
	r.excuses.Look()
	err := resize()
	if err == nil || !strings.Contains(err.Error(), syscall.EINVAL.Error()) || !r.excused(err, run.Pod.FullName()) {
		return err
	}
	time.Sleep(patience(time.Second)) // what was late may still be under way
	return resize()
}

// lifecycleResize resizes an LS pod as kubelet 1.36 does, up and down. Its burst equals its quota, so every step down
// would be refused by the kernel if nobody lowered the burst first.
func lifecycleResize(r *rig) {
	r.up(standard, onlyEvents()) // bursts follow the update, and the looks at the pod that it brings about
	run := r.pod(lsPod("resize"))
	r.now(run, quotaWants(50000, 128<<20))
	r.resizes(run)
	if n := r.burstFiles(); n == 0 {
		r.t.Error("koord-nri has no burst's file open: it looks each one up while the kubelet waits")
	}
	r.outlivesResize(run)
}

// burstFiles counts the files of bursts that koord-nri has open.
func (r *rig) burstFiles() (n int) {
	r.t.Helper()
	links, err := filepath.Glob("/proc/" + strconv.Itoa(r.plugin.Process.Pid) + "/fd/*")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && strings.Contains(filepath.Base(at), "burst") {
			n++
		}
	}
	return n
}

// outlivesResize: containerd lists a pod as it was made. A koord-nri that comes after a resize, and one that connects anew, keep to what
// the kubelet has written since.
func (r *rig) outlivesResize(run *kubelet.Running) {
	r.t.Helper()
	if err := r.kube.ResizeContainer(r.t.Context(), run, "main", limited("1500m", "192Mi")); err != nil {
		r.t.Fatal(err)
	}
	want := quotaWants(150000, 192<<20)
	r.soon(5*time.Second, run, want)
	for what, again := range map[string]func(){
		"a kill of koord-nri": func() { r.stop(syscall.SIGKILL); r.again() },
		"a kill of containerd": func() {
			before := r.metric("koord_rt_nri_connects_total")
			if err := errors.Join(r.host.Kill(), r.host.Restart(r.t.Context())); err != nil {
				r.t.Fatal(err)
			}
			r.eventually(10*time.Second, func() error {
				if r.metric("koord_rt_nri_connects_total") <= before || r.metric("koord_rt_nri_connected") != 1 {
					return errors.New("not connected again")
				}
				return nil
			})
		},
	} {
		again()
		for range 20 { // what is written to a pod that was listed comes right after
			if err := r.differs(run, want); err != nil {
				r.t.Fatalf("after %s: %v", what, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// resizes takes the LS pod up and down.
func (r *rig) resizes(run *kubelet.Running) {
	r.t.Helper()
	for _, step := range []struct {
		cpu, memory   kubelet.Quantity
		quota, memMax int
	}{
		{"1500m", "256Mi", 150000, 256 << 20},
		{"300m", "128Mi", 30000, 128 << 20},
		{"1", "192Mi", 100000, 192 << 20},
		{"250m", "192Mi", 25000, 192 << 20},
	} {
		if err := r.resizeMain(run, limited(step.cpu, step.memory)); err != nil {
			r.t.Fatalf("resize to %s: %v", step.cpu, err)
		}
		w := quotaWants(step.quota, step.memMax)
		r.now(run, w[:2])
		r.soon(5*time.Second, run, w)
	}
	// At once one after the other: the plugin is still busy with the last one when the next comes.
	for i := range 6 {
		cpu := []kubelet.Quantity{"2", "400m"}[i%2]
		if err := r.resizeMain(run, limited(cpu, "192Mi")); err != nil {
			r.t.Fatalf("resize %d to %s: %v", i, cpu, err)
		}
	}
	r.soon(5*time.Second, run, quotaWants(40000, 192<<20))
	// Kubelet writes the class's cgroup once a minute and after its restart.
	if err := r.kube.UpdateQoS(); err != nil {
		r.t.Error(err)
	}
	r.soon(5*time.Second, run, quotaWants(40000, 192<<20))
}

// lifecycleResizePod lowers the limit of a pod and of none of its containers. No container's update makes room for that: the kernel refuses a
// quota below the pod's burst, unless koord-nri has lowered it when the runtime told of the pod's resize, which comes before the write.
func lifecycleResizePod(r *rig) {
	r.up(standard, onlyEvents()) // the new burst follows the kubelet's write
	run := r.pod(lsPod("resize-pod"))
	r.now(run, quotaWants(50000, 128<<20))
	limit := func(cpu kubelet.Quantity, quota string) {
		r.t.Helper()
		if err := r.resizing(run, func() error { return r.kube.LimitPod(r.t.Context(), run, cpu) }); err != nil {
			r.t.Fatalf("a limit of %s for the pod alone: %v", cpu, err)
		}
		want := []string{"pod cpu.cfs_quota_us=" + quota, "pod cpu.cfs_burst_us=" + quota}
		if r.tree.V2() {
			want = []string{"pod cpu.max=" + quota + " 100000", "pod cpu.max.burst=" + quota}
		}
		r.now(run, want[:1])
		r.soon(5*time.Second, run, append(want, quotaWants(50000, 128<<20)[:3]...)) // with the container's as they were
	}
	limit("800m", "80000")
	file := map[bool]string{false: "cpu.cfs_quota_us", true: "cpu.max"}[r.tree.V2()]
	if err := cgroups.Write(r.kube.PodDir(run, r.controller(file)), file, "60000"); !errors.Is(err, syscall.EINVAL) {
		r.t.Errorf("a quota below the pod's burst, of which nobody was told: %v, want EINVAL: this test would show nothing", err)
	}
	limit("600m", "60000")
	if n := r.metric("koord_rt_nri_event_duration_seconds_count", `event="UpdatePodSandbox"`); n < 2 {
		r.t.Errorf("koord-nri has heard of %v resizes of the pod, want 2", n)
	}
}

// lifecycleResizeExclusive resizes a pod that owns its CPU: the quota that kubelet writes does not last, on container or
// pod.
func lifecycleResizeExclusive(r *rig) {
	if runtime.NumCPU() < 2 {
		r.t.Fatal("needs two CPUs")
	}
	r.up(standard, onlyEvents()) // the kubelet's later write to the pod is looked for because of the update
	run := r.pod(lsrPod("resize-lsr"))
	r.now(run, wants("LSR", ""))
	for _, cpu := range []kubelet.Quantity{"2", "1"} {
		res := map[string]kubelet.Quantity{"cpu": cpu, "memory": "64Mi"}
		if err := r.kube.ResizeContainer(r.t.Context(), run, "main", kubelet.Resources{Requests: res, Limits: res}); err != nil {
			r.t.Fatalf("resize to %s: %v", cpu, err)
		}
		r.soon(5*time.Second, run, wants("LSR", ""))
		// The kubelet's other values are the new ones. runc turns shares into a weight by its own formula.
		want := map[bool]map[kubelet.Quantity]string{
			false: {"2": "main cpu.shares=2048", "1": "main cpu.shares=1024"},
			true:  {"2": "main cpu.weight=174", "1": "main cpu.weight=100"},
		}
		r.now(run, []string{want[r.tree.V2()][cpu]})
	}
	r.restoresResized(run)
}

// restoresResized resizes once more and restores: the pod has what the kubelet asks for now, not what it asked for at first.
func (r *rig) restoresResized(run *kubelet.Running) {
	r.t.Helper()
	res := map[string]kubelet.Quantity{"cpu": "2", "memory": "128Mi"}
	if err := r.kube.ResizeContainer(r.t.Context(), run, "main", kubelet.Resources{Requests: res, Limits: res}); err != nil {
		r.t.Fatal(err)
	}
	r.soon(5*time.Second, run, wants("LSR", ""))
	r.stop(syscall.SIGTERM)
	if out, err := r.ctl("restore"); err != nil {
		r.t.Fatalf("restore after a resize: %v\n%s", err, out)
	}
	want := []string{"pod cpu.cfs_quota_us=200000", "main cpu.cfs_quota_us=200000", "pod memory.limit_in_bytes=134217728"}
	if r.tree.V2() {
		want = []string{"pod cpu.max=200000 100000", "main cpu.max=200000 100000", "pod memory.max=134217728"}
	}
	r.now(run, want)
}

// lifecycleCPUManager sends what kubelet's CPU manager sends every ten seconds: a cpuset of its own. The answer is ours. The CPUs of SYSTEM
// pods are the node agent's to tell; here they are others than those of LS.
func lifecycleCPUManager(r *rig) {
	last, rest := cpus()
	kept, err := topo.ParseCPUSet(last)
	if err != nil {
		r.t.Fatal(err)
	}
	r.prepare(&scenario.Scenario{Dynamic: node.Dynamic{Known: true, SystemQoS: kept}})
	r.up(standard, nil)
	ls, be, lsr := r.pod(lsPod("manager-ls")), r.pod(bePod("manager-be")), r.pod(lsrPod("manager-lsr"))
	system := r.pod(openPod("manager-system", "SYSTEM"))
	all := "0-" + strconv.Itoa(runtime.NumCPU()-1)
	for range 3 {
		for run, want := range map[*kubelet.Running]string{ls: rest, be: rest, lsr: last, system: last} {
			err := r.host.CRI().UpdateContainer(r.t.Context(), run.Containers["main"], &runtimeapi.LinuxContainerResources{CpusetCpus: all})
			if err != nil {
				r.t.Fatal(err)
			}
			r.now(run, []string{"main cpuset.cpus=" + want})
		}
	}
	r.now(ls, wants("LS", rest))
	r.now(be, wants("BE", rest))
	r.now(lsr, wants("LSR", ""))
	r.now(system, []string{"main cpuset.cpus=" + last})
}

// lifecycleStaticManagers has the checkpoints of a kubelet whose static CPU and memory managers place containers, which both tell
// the runtime at creation: what they have placed stays there, also when a pod comes whose CPUs the scheduler chose.
func lifecycleStaticManagers(r *rig) {
	last, rest := cpus()
	paths := r.base()["host"].(map[string]any)
	for key, policy := range map[string]string{"kubeletCPUManagerState": "static", "kubeletMemoryManagerState": "Static"} {
		file := filepath.Join(r.state, key)
		if err := os.WriteFile(file, []byte(`{"policyName":"`+policy+`"}`), 0o600); err != nil {
			r.t.Fatal(err)
		}
		paths[key] = file
	}
	r.up(standard, map[string]any{"host": paths})
	placed := func(p kubelet.Pod, cpus string) *kubelet.Running {
		p.Containers[0].CPUs, p.Containers[0].Mems = cpus, "0"
		return r.pod(p)
	}
	ls, be := placed(lsPod("static-ls"), allCPUs()), placed(bePod("static-be"), allCPUs())
	lsr := placed(lsrPod("static-lsr"), last) // whose CPU may be on another memory node than the manager's
	stays := func(shared string) {
		r.t.Helper()
		r.now(lsr, append(wants("LSR", ""), "main cpuset.mems=0"))
		r.now(ls, append(wants("LS", shared), "main cpuset.mems=0"))
		r.now(be, append(wants("BE", shared), "main cpuset.mems=0"))
	}
	stays(allCPUs())
	// The manager takes CPUs out of its shared pool.
	for _, run := range []*kubelet.Running{ls, be} {
		if err := r.host.CRI().UpdateContainer(r.t.Context(), run.Containers["main"], &runtimeapi.LinuxContainerResources{CpusetCpus: rest}); err != nil {
			r.t.Fatal(err)
		}
	}
	stays(rest)
	r.degraded("cpuset", "kubelet's static CPU manager is on")
	out, _ := r.ctl("doctor", "-o", "json", "--containerd-config", r.host.Config, "--nri-socket", r.host.NRISocket) // others may be amiss
	for _, owned := range []string{"cpuset.cpus", "cpuset.mems"} {
		if !strings.Contains(out, "kubelet's static policy owns "+owned) {
			r.t.Errorf("doctor does not see whose %s is:\n%s", owned, out)
		}
	}
}
