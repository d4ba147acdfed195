// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/engine/enginetest"
)

// NRI holds one lock over all plugins while one synchronises. What has to be repaired is repaired behind the answer: with a kernel
// in which the repair hangs, Synchronize is answered in time and the next container gets its plan.
func TestRepairsFollowOutsideTheRuntimesLock(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.kernel.hold = make(chan struct{})
	let := sync.OnceFunc(func() { close(h.kernel.hold) })
	defer let() // before the plugin ends, which waits for what it writes
	h.rt = newRuntime(t, h.socket)
	sb := h.sandbox(t, "before", "LS", nil)
	old := ctrOf(sb, "app")
	old.State = api.ContainerState_CONTAINER_RUNNING
	h.runc(t, old, nil)
	h.rt.add(sb, old)
	h.run(t)

	enginetest.Eventually(t, "a repair", func() bool { return h.kernel.held.Load() > 0 })
	next := h.sandbox(t, "next", "LS", nil)
	if a := h.create(t, next, ctrOf(next, "app")); a.GetLinux().GetResources().GetUnified()["cpu.max.burst"] != "100000" {
		t.Errorf("the next container gets %v while the repair hangs", a)
	}
	if n := h.engine.Status().Counters["late"]; n != 0 {
		t.Errorf("%d answers were late", n)
	}
	if got := h.tree.Get(t, old.Linux.CgroupsPath, "cpu.max.burst"); got == "100000" {
		t.Error("the repair did not hang")
	}
	let()
	enginetest.Eventually(t, "the repair", func() bool { return h.tree.Get(t, old.Linux.CgroupsPath, "cpu.max.burst") == "100000" })
}
