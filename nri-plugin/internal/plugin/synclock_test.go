// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// heldKernel writes nothing until it is let go.
type heldKernel struct {
	engine.Kernel
	once    sync.Once
	entered chan struct{} // closed at the first write
	let     chan struct{} // closed by the test
}

// Apply implements engine.Kernel.
func (k *heldKernel) Apply(ctx context.Context, p plan.Plan, gen uint64) []apply.Result {
	k.once.Do(func() { close(k.entered) })
	<-k.let
	return k.Kernel.Apply(ctx, p, gen)
}

// NRI holds one lock over all plugins while one synchronises. What has to be repaired is repaired behind the answer: with a kernel
// in which the repair hangs, Synchronize is answered in time and the next container gets its plan.
func TestRepairsFollowOutsideTheRuntimesLock(t *testing.T) {
	t.Parallel()
	k := &heldKernel{entered: make(chan struct{}), let: make(chan struct{})}
	let := sync.OnceFunc(func() { close(k.let) })
	t.Cleanup(let) // the machine ends after it
	h := newHostWith(t, "6.1", nil, func(_ *host, o *engine.Options) {
		k.Kernel, o.Kernel = o.Kernel, k
	})
	h.rt = newRuntime(t, h.socket)
	sb := h.sandbox(t, "before", "LS", nil)
	old := ctrOf(sb, "app")
	old.State = api.ContainerState_CONTAINER_RUNNING
	h.runc(t, old, nil)
	h.rt.add(sb, old)
	h.run(t)
	t.Cleanup(let) // before the plugin ends, which waits for what it writes

	select {
	case <-k.entered:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is repaired")
	}
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
