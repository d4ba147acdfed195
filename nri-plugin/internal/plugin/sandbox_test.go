// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// A pod's sandbox dies and the kubelet makes another one, in the same cgroup, before it removes the dead one. The pod's resctrl group
// and the ledger's books on its cgroup, and so on all that is below, stay as long as it has a sandbox; with the last one they go.
func TestPodOutlivesItsSandbox(t *testing.T) {
	t.Parallel()
	h, g := rdtHost(t, nil)
	h.run(t)
	annotations := map[string]string{protocol.AnnotationResctrl: resctrlAsk}
	first := h.pod(t, "web", "LS", annotations)
	enginetest.Eventually(t, "group", func() bool { return g.has("koordlet-web") })
	second := h.sandbox(t, "web", "LS", annotations)
	second.Id = "sandbox-web-again"
	must(t, h.rt.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: first}))
	must(t, h.rt.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: second}))
	ctr := ctrOf(second, "app")
	h.create(t, second, ctr)
	must(t, h.start(t, second, ctr))
	gone := func(cgroup string) bool {
		for _, r := range h.journal.All() {
			if r.Via == journal.ViaGone && r.Target.Level == plan.LevelPod && r.Target.Cgroup == cgroup {
				return true
			}
		}
		return false
	}
	remove := func(sb *api.PodSandbox) {
		t.Helper()
		must(t, h.rt.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{Pod: sb}))
	}
	remove(first)
	other := h.pod(t, "other", "LS", nil)
	remove(other) // what is left for later is done in order
	enginetest.Eventually(t, "end of the other pod", func() bool { return gone(other.Linux.CgroupParent) })
	if gone(first.Linux.CgroupParent) || !g.has("koordlet-web") {
		t.Errorf("the pod lives; books closed: %t, group: %t", gone(first.Linux.CgroupParent), g.has("koordlet-web"))
	}
	remove(second)
	enginetest.Eventually(t, "end of the pod", func() bool { return gone(second.Linux.CgroupParent) && !g.has("koordlet-web") })
}

// While we are away the dead sandbox of a pod is removed; the list of the runtime has the other one.
func TestPodOutlivesItsSandboxWhileWeAreAway(t *testing.T) {
	t.Parallel()
	h, g := rdtHost(t, nil)
	h.rt = newRuntime(t, h.socket)
	annotations := map[string]string{protocol.AnnotationResctrl: resctrlAsk}
	first, second := h.sandbox(t, "web", "LS", annotations), h.sandbox(t, "web", "LS", annotations)
	second.Id, second.Pid = "sandbox-web-again", 4711
	h.rt.add(first)
	h.run(t)
	enginetest.Eventually(t, "group", func() bool { return g.has("koordlet-web") })
	h.rt.die()
	h.rt = newRuntime(t, h.socket)
	h.rt.add(second)
	enginetest.Eventually(t, "the new list", func() bool { return h.rt.syncs() > 0 && h.engine.Connected() })
	h.rt.settle()
	other := h.pod(t, "other", "LS", nil)
	must(t, h.rt.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{Pod: other}))
	ended := func(name string) bool {
		for _, r := range h.journal.All() {
			if r.Via == journal.ViaGone && strings.HasSuffix(r.Target.Cgroup, "pod"+name) {
				return true
			}
		}
		return false
	}
	enginetest.Eventually(t, "end of the other pod", func() bool { return ended("other") })
	if ended("web") || !g.has("koordlet-web") {
		t.Error("the pod lives, and its books or its group are closed")
	}
}

// A sandbox that is refused is forgotten: the runtime tells no end of what it has not run.
func TestRefusedSandboxIsForgotten(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	sb := h.sandbox(t, "strict", "LS", map[string]string{protocol.AnnotationRequired: "cpu-burst"})
	h.tree.Set(t, sb.Linux.CgroupParent, "cpu.max", "1000 100000")
	err := h.rt.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: sb})
	if err == nil || !strings.Contains(err.Error(), "cpu.burst of pod default/strict") {
		t.Errorf("error = %v", err)
	}
	enginetest.Eventually(t, "nothing known", func() bool { return h.engine.Status().Counters["pods"] == 0 })
}

// The CPUs of a container whose start is refused are free: it never runs.
func TestRefusedStartClaimsNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	sb := h.pod(t, "strict", "LSR", map[string]string{
		protocol.AnnotationRequired: "cpuset", protocol.AnnotationResourceStatus: `{"cpuset":"0-3"}`,
	})
	ctr := ctrOf(sb, "app")
	h.create(t, sb, ctr)
	if got := h.views.Load().Claims.LSR.String(); got != "0-3" {
		t.Fatalf("claimed before the start: %q", got)
	}
	h.kernel.set(nil, true)
	if err := h.start(t, sb, ctr); err == nil || !strings.Contains(err.Error(), "cpuset could not be proved") {
		t.Errorf("error = %v", err)
	}
	h.kernel.set(nil, false)
	if got := h.views.Load().Claims.LSR; !got.Empty() {
		t.Errorf("still claimed: %s", got)
	}
}
