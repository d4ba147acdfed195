// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"context"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// dismiss ends what the plugin started although Run was not called.
func dismiss(t *testing.T, h *host) {
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		must(t, h.plugin.Run(ctx))
	})
}

// The pod's cgroup is written after the reply to RunPodSandbox, and in force when a container of it is started. Run is
// not called here, so that there is no background job: the handler has to see to it.
func TestStartFindsThePodInForce(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	dismiss(t, h)
	sb := h.sandbox(t, "web", "LS", nil)
	must(t, h.plugin.RunPodSandbox(t.Context(), sb))
	dir := sb.Linux.CgroupParent
	if got := h.tree.Get(t, dir, "cpu.max.burst"); got != "0" {
		t.Fatalf("cpu.max.burst = %s already: RunPodSandbox has not replied before the write", got)
	}
	ctr := ctrOf(sb, "app")
	adj, _, err := h.plugin.CreateContainer(t.Context(), sb, ctr)
	must(t, err)
	h.runc(t, ctr, adj)
	must(t, h.plugin.StartContainer(t.Context(), sb, ctr))
	if got := h.tree.Get(t, dir, "cpu.max.burst"); got != "100000" {
		t.Errorf("cpu.max.burst = %s when the container is exec'd", got)
	}
}

func TestFailClosedPodIsWrittenBeforeTheReply(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	dismiss(t, h)
	sb := h.sandbox(t, "web", "LS", map[string]string{protocol.AnnotationRequired: "cpu-burst"})
	must(t, h.plugin.RunPodSandbox(t.Context(), sb))
	if got := h.tree.Get(t, sb.Linux.CgroupParent, "cpu.max.burst"); got == "0" {
		t.Errorf("cpu.max.burst = %s after the reply", got)
	}
}
