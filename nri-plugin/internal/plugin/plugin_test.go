// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/journal"
)

func TestMain(m *testing.M) {
	nrilog.Set(quiet{})
	// A loaded machine must not have the runtime drop a plugin.
	adaptation.SetPluginRequestTimeout(time.Minute)
	adaptation.SetPluginRegistrationTimeout(time.Minute)
	goleak.VerifyTestMain(m)
}

// quiet drops the adaptation's log.
type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(context.Context, string, ...any)  {}
func (quiet) Errorf(context.Context, string, ...any) {}

// One BE container from pod to removal: the spec carries what it can, the kernel holds the rest, the proof is kept.
func TestLifeOfBE(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	sb := h.pod(t, "be", "BE", map[string]string{
		protocol.AnnotationExtendedResource: `{"containers":{"app":{"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"536870912"},"requests":{"kubernetes.io/batch-cpu":"500"}}}}`,
	})
	ctr := ctrOf(sb, "app")
	adj := h.create(t, sb, ctr)
	if adj == nil || adj.Annotations[protocol.AnnotationApplied] == "" {
		t.Fatalf("no adjustment: %v", adj)
	}
	if got := h.tree.Get(t, ctr.Linux.CgroupsPath, "cpu.max"); got != "50000 100000" {
		t.Errorf("cpu.max = %s", got)
	}
	if got := h.tree.Get(t, ctr.Linux.CgroupsPath, "memory.max"); got != "536870912" {
		t.Errorf("memory.max = %s", got)
	}
	must(t, h.start(t, sb, ctr))
	enginetest.Eventually(t, "proof", func() bool {
		for _, r := range h.journal.All() {
			if r.Via == journal.ViaProof && r.Knob == "cpu.quota" && r.Err == "" {
				return true
			}
		}
		return false
	})
	_, err := h.rt.StopContainer(t.Context(), &api.StopContainerRequest{Pod: sb, Container: ctr})
	must(t, err)
	must(t, h.rt.RemoveContainer(t.Context(), &api.RemoveContainerRequest{Pod: sb, Container: ctr}))
	must(t, h.rt.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: sb}))
	must(t, h.rt.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{Pod: sb}))
	enginetest.Eventually(t, "forgotten", func() bool {
		for _, r := range h.journal.All() {
			if r.Via == journal.ViaGone && r.Target.Container == ctr.Id {
				return true
			}
		}
		return false
	})
}

// An LSR container's CPUs are free of LS and BE before it starts, and theirs again after it has ended.
func TestDisplace(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	be := h.pod(t, "be", "BE", nil)
	neighbour := ctrOf(be, "app")
	h.create(t, be, neighbour)
	must(t, h.start(t, be, neighbour))

	lsr := h.pod(t, "lsr", "LSR", map[string]string{protocol.AnnotationResourceStatus: `{"cpuset":"0-3"}`})
	ctr := ctrOf(lsr, "app")
	h.create(t, lsr, ctr)
	must(t, h.start(t, lsr, ctr))
	if got := h.tree.Get(t, ctr.Linux.CgroupsPath, "cpuset.cpus"); got != "0-3" {
		t.Errorf("LSR runs on %q", got)
	}
	if got := h.tree.Get(t, neighbour.Linux.CgroupsPath, "cpuset.cpus"); got != "4-7" {
		t.Errorf("BE runs on %q while the LSR container starts", got)
	}
	_, err := h.rt.StopContainer(t.Context(), &api.StopContainerRequest{Pod: lsr, Container: ctr})
	must(t, err)
	enginetest.Eventually(t, "BE widens", func() bool { return h.tree.Get(t, neighbour.Linux.CgroupsPath, "cpuset.cpus") == "0-7" })
}

// A resize downwards meets a kernel whose burst has been lowered, and is answered with our final values.
func TestUpdateLowersBurstFirst(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	sb := h.pod(t, "web", "LS", nil)
	ctr := ctrOf(sb, "app")
	h.create(t, sb, ctr)
	must(t, h.start(t, sb, ctr))
	dir := ctr.Linux.CgroupsPath
	if got := h.tree.Get(t, dir, "cpu.max.burst"); got != "100000" {
		t.Fatalf("burst = %q, want half of the quota", got)
	}
	rpl, err := h.rt.UpdateContainer(t.Context(), &api.UpdateContainerRequest{
		Pod: sb, Container: ctr, LinuxResources: resources(512, 50000, 1<<30),
	})
	must(t, err)
	if err := h.tree.Write(h.tree.Path(dir, "cpu.max"), "50000 100000", false); err != nil {
		t.Errorf("runc could not write the new quota: %v", err)
	}
	if len(rpl.Update) != 1 || rpl.Update[0].GetContainerId() != ctr.Id {
		t.Fatalf("update = %v", rpl.Update)
	}
	r := rpl.Update[0].GetLinux().GetResources()
	if r.GetUnified()["cpu.max.burst"] != "25000" || r.GetCpu().GetQuota().GetValue() != 50000 {
		t.Errorf("final values = %v", r)
	}
	must(t, h.rt.PostUpdateContainer(t.Context(), &api.PostUpdateContainerRequest{Pod: sb, Container: ctr}))
	enginetest.Eventually(t, "new burst", func() bool { return h.tree.Get(t, dir, "cpu.max.burst") == "25000" })
}

// A pod that nothing is asked for is answered with nothing.
func TestUntouched(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	sb := h.pod(t, "plain", "LS", map[string]string{protocol.KeyOptOut: "true"})
	rpl, err := h.rt.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sb, Container: ctrOf(sb, "app")})
	must(t, err)
	if n := len(rpl.Adjust.Annotations); n != 0 || len(rpl.Adjust.Linux.Resources.Unified) != 0 {
		t.Errorf("adjustment of a pod that has opted out: %v", rpl.Adjust)
	}
}

// Hostile input: the pod starts with what is valid, the rest is named.
func TestHostileAnnotations(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	for i, annotations := range []map[string]string{
		{protocol.AnnotationResourceStatus: `{"cpuset":"0-4294967295"}`},
		{protocol.AnnotationExtendedResource: strings.Repeat("[", 1<<20)},
		{protocol.AnnotationMemoryQOS: "\x00{", protocol.AnnotationCPUBurst: `{"cpuBurstPercent":-1}`},
		{protocol.AnnotationResctrl: `{"llc":{"schemata":{"range":[90,10]}}}`, protocol.AnnotationDeviceAllocated: `{"gpu":[{"minor":-7}]}`},
		{protocol.AnnotationApplied: "x", protocol.AnnotationOOMScoreAdj: "99999999999999999999"},
	} {
		sb := h.pod(t, fmt.Sprintf("evil%d", i), "LS", annotations)
		ctr := ctrOf(sb, "app")
		if adj := h.create(t, sb, ctr); adj.GetLinux().GetResources().GetUnified()["memory.high"] == "" {
			t.Errorf("pod %d got nothing of the node's strategy", i)
		}
		must(t, h.start(t, sb, ctr))
	}
	enginetest.Eventually(t, "problems in the ledger", func() bool {
		seen := map[string]bool{}
		for _, r := range h.journal.All() {
			if r.Via == journal.ViaProblem {
				seen[r.Target.Name[:len("default/evil0")]] = true
			}
		}
		return len(seen) == 5
	})
}

// A late or panicking handler is answered with the request as it was, and the plugin stays connected.
func TestLateAndPanic(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	sb := h.pod(t, "web", "LS", nil)
	// The kernel answers when the start has been, however late a loaded machine makes that; a start that waits for it is told apart.
	const limit = time.Minute
	held := make(chan struct{})
	let := sync.OnceFunc(func() { close(held) })
	t.Cleanup(let)
	defer time.AfterFunc(limit, let).Stop()
	for name, set := range map[string]func(){
		"late":  func() { h.kernel.set(held, false); h.engine.SetDeadline(time.Second) },
		"panic": func() { h.kernel.set(nil, true) },
	} {
		ctr := ctrOf(sb, name)
		h.create(t, sb, ctr)
		set()
		begin := time.Now()
		must(t, h.start(t, sb, ctr))
		if d := time.Since(begin); d >= limit {
			t.Errorf("%s: the runtime waited %v", name, d)
		}
		if name == "late" {
			let()
		}
		h.kernel.set(nil, false)
		h.engine.SetDeadline(deadline)
	}
	if s := h.engine.Status(); s.Counters["late"] != 1 || s.Counters["failOpen"] != 1 {
		t.Errorf("counters = %v", s.Counters)
	}
	ctr := ctrOf(sb, "after")
	if adj := h.create(t, sb, ctr); adj.GetAnnotations()[protocol.AnnotationApplied] == "" {
		t.Error("the plugin has been disconnected")
	}
	if h.rt.syncs() != 1 {
		t.Errorf("%d connections", h.rt.syncs())
	}
}

// A pod that requires a feature which is not in force does not start; another one does.
func TestFailClosed(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	sb := h.sandbox(t, "strict", "LS", map[string]string{protocol.AnnotationRequired: "core-sched"})
	err := h.rt.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: sb})
	if err == nil || !strings.Contains(err.Error(), "core-sched") {
		t.Errorf("error = %v", err)
	}
	strict := h.pod(t, "burst", "LS", map[string]string{protocol.AnnotationRequired: "cpu-burst"})
	ctr := ctrOf(strict, "app")
	h.create(t, strict, ctr)
	h.tree.Set(t, ctr.Linux.CgroupsPath, "cpu.max.burst", "1")
	if err := h.start(t, strict, ctr); err == nil || !strings.Contains(err.Error(), "cpu.burst") {
		t.Errorf("start with a wrong burst: %v", err)
	}
}

// A thousand containers that came without us: the reply is empty, and all of them are repaired.
// How long that takes is measured by test/bench.
func TestSynchronizeThousand(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.rt = newRuntime(t, h.socket)
	var dirs []string
	for i := range 100 {
		sb := h.sandbox(t, fmt.Sprintf("p%d", i), "LS", nil)
		var ctrs []*api.Container
		for j := range 10 {
			ctr := ctrOf(sb, fmt.Sprintf("c%d", j))
			ctr.State = api.ContainerState_CONTAINER_RUNNING
			h.runc(t, ctr, nil)
			dirs = append(dirs, ctr.Linux.CgroupsPath)
			ctrs = append(ctrs, ctr)
		}
		h.rt.add(sb, ctrs...)
	}
	h.run(t)
	repaired := 0
	enginetest.Eventually(t, "repair of all", func() bool {
		for repaired < len(dirs) && h.tree.Get(t, dirs[repaired], "cpu.max.burst") == "100000" {
			repaired++
		}
		return repaired == len(dirs)
	})
	enginetest.Eventually(t, "count of unmanaged", func() bool { return h.engine.Status().Counters["unmanaged"] == 1000 })
	if h.rt.updates != 0 {
		t.Errorf("%d updates in the reply of Synchronize", h.rt.updates)
	}
}

// The runtime goes away and comes back: the plugin reconnects, keeps what it knows, and there is one connection.
func TestReconnect(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	sb := h.pod(t, "web", "LS", nil)
	ctr := ctrOf(sb, "app")
	h.create(t, sb, ctr)
	must(t, h.start(t, sb, ctr))
	h.rt.die()
	enginetest.Eventually(t, "loss of the connection", func() bool { return !h.engine.Connected() })
	h.tree.Set(t, ctr.Linux.CgroupsPath, "memory.high", "max")

	h.rt = newRuntime(t, h.socket)
	ctr.State = api.ContainerState_CONTAINER_RUNNING
	h.rt.add(sb, ctr)
	enginetest.Eventually(t, "reconnect", h.engine.Connected)
	enginetest.Eventually(t, "repair after the second Synchronize", func() bool { return h.tree.Get(t, ctr.Linux.CgroupsPath, "memory.high") != "max" })
	enginetest.Eventually(t, "second sync", func() bool { return h.rt.syncs() == 1 })
	h.rt.settle()
	// Our own values are not taken for the kubelet's: half of the quota that the kubelet asked, not half of ours.
	rpl, err := h.rt.UpdateContainer(t.Context(), &api.UpdateContainerRequest{Pod: sb, Container: ctr, LinuxResources: resources(0, 0, 0)})
	must(t, err)
	if n := len(rpl.Update); n > 1 {
		t.Errorf("%d updates", n)
	}
	if h.engine.Status().Connects != 2 {
		t.Errorf("connects = %d", h.engine.Status().Connects)
	}
}

// After kill -9 of the plugin a container's annotation and the ledger tell what it had: a strategy that has changed since
// takes back what nobody wants any more, to what the kubelet had asked.
func TestRestartTakesBack(t *testing.T) {
	t.Parallel()
	first := newHost(t, "6.1")
	first.run(t)
	sb := first.pod(t, "be", "BE", map[string]string{protocol.AnnotationExtendedResource: batch})
	ctr := ctrOf(sb, "app")
	first.create(t, sb, ctr)
	must(t, first.start(t, sb, ctr))
	if got := ctr.Linux.Resources.Cpu.Quota.Value; got != 50000 {
		t.Fatalf("quota in the spec = %d", got)
	}

	second := newHost(t, "6.1")
	second.rt = newRuntime(t, second.socket)
	delete(sb.Annotations, protocol.AnnotationExtendedResource)
	second.tree.Mkdir(t, sb.Linux.CgroupParent)
	second.runc(t, ctr, nil)
	ctr.State = api.ContainerState_CONTAINER_RUNNING
	second.rt.add(sb, ctr)
	second.run(t)
	enginetest.Eventually(t, "the kubelet's quota", func() bool { return second.tree.Get(t, ctr.Linux.CgroupsPath, "cpu.max") == "200000 100000" })
	enginetest.Eventually(t, "the kubelet's memory limit", func() bool {
		return second.tree.Get(t, ctr.Linux.CgroupsPath, "memory.max") == "1073741824"
	})
}

// A strategy that changes while containers run reaches them at once, not with the next drift check.
func TestStrategyChange(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	sb := h.pod(t, "web", "LS", nil)
	ctr := ctrOf(sb, "app")
	h.create(t, sb, ctr)
	must(t, h.start(t, sb, ctr))
	h.views.SetFile(nil, "")
	for file, want := range map[string]string{"cpu.max.burst": "0", "memory.high": "max"} {
		enginetest.Eventually(t, file+" goes back", func() bool { return h.tree.Get(t, ctr.Linux.CgroupsPath, file) == want })
	}
}

// Stopping gives the kubelet's directories back and leaves containers as they are.
func TestStop(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	sb := h.pod(t, "web", "LSR", nil)
	ctr := ctrOf(sb, "app")
	h.create(t, sb, ctr)
	must(t, h.start(t, sb, ctr))
	enginetest.Eventually(t, "protection of ancestors", func() bool { return h.tree.Get(t, "/kubepods", "memory.min") != "0" })
	before := h.tree.Get(t, ctr.Linux.CgroupsPath, "memory.min")
	// What stands there is ours, for this life and for one that follows kill -9: no sign of the kubelet's MemoryQoS.
	if !h.engine.OwnsMemoryMin("/kubepods") || !engine.NewPast(h.journal.All()).OwnsMemoryMin("/kubepods") {
		t.Error("memory.min of kubepods is taken for the kubelet's")
	}
	if h.engine.OwnsMemoryMin("/elsewhere") || engine.NewPast(h.journal.All()).OwnsMemoryMin("/elsewhere") {
		t.Error("memory.min of a directory that we never wrote is taken for ours")
	}
	h.stop()
	if engine.NewPast(h.journal.All()).OwnsMemoryMin("/kubepods") {
		t.Error("what stands there after we left is taken for ours")
	}
	if got := h.tree.Get(t, "/kubepods", "memory.min"); got != "0" {
		t.Errorf("kubepods memory.min = %s after stop", got)
	}
	if got := h.tree.Get(t, ctr.Linux.CgroupsPath, "memory.min"); got != before || got == "0" {
		t.Errorf("container memory.min = %s, was %s", got, before)
	}
}

// An LSE/LSR pod on cgroup v1, where a parent bounds its children.
func TestV1(t *testing.T) {
	t.Parallel()
	h := newHost(t, "v1")
	h.run(t)
	sb := h.pod(t, "lsr", "LSR", map[string]string{protocol.AnnotationResourceStatus: `{"cpuset":"0-3"}`})
	ctr := ctrOf(sb, "app")
	adj := h.create(t, sb, ctr)
	if len(adj.GetLinux().GetResources().GetUnified()) != 0 {
		t.Errorf("unified keys on cgroup v1: %v", adj)
	}
	if got := adj.GetLinux().GetResources().GetCpu().GetCpus(); got != "0-3" {
		t.Errorf("cpus = %q", got)
	}
	must(t, h.start(t, sb, ctr))
}
