// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/engine/enginetest"
)

// A container that came without us is counted and recorded once: one of the runtime's list, and one of which it tells first at its start;
// neither again when the runtime has been away.
func TestUnmanagedOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.rt = newRuntime(t, h.socket)
	sb := h.sandbox(t, "web", "LS", nil)
	h.tree.Mkdir(t, sb.Linux.CgroupParent)
	came := func(name string) *api.Container {
		ctr := ctrOf(sb, name)
		ctr.State = api.ContainerState_CONTAINER_RUNNING
		h.runc(t, ctr, nil)
		return ctr
	}
	counted := func(names ...string) {
		t.Helper()
		enginetest.Eventually(t, "count of unmanaged", func() bool { return h.engine.Status().Counters["unmanaged"] == uint64(len(names)) })
		var got []string
		enginetest.Eventually(t, "a record of each", func() bool {
			got = nil
			for _, r := range h.journal.All() {
				if r.Key == "unmanaged" {
					got = append(got, r.Target.Name)
				}
			}
			return len(got) >= len(names)
		})
		if slices.Sort(got); !slices.Equal(got, names) {
			t.Errorf("recorded: %v, want %v", got, names)
		}
	}
	listed := came("listed")
	h.rt.add(sb, listed)
	h.run(t)
	counted("default/web/listed")

	// One whose update was late runs by the kubelet's values for a moment, and came with us.
	ours := ctrOf(sb, "ours")
	h.create(t, sb, ours)
	must(t, h.start(t, sb, ours))
	h.engine.UpdatedLate(ours.Id)

	late := came("late")
	must(t, h.start(t, sb, late))
	counted("default/web/late", "default/web/listed")

	h.rt.die()
	enginetest.Eventually(t, "loss of the connection", func() bool { return !h.engine.Connected() })
	meanwhile := came("meanwhile")
	ours.State = api.ContainerState_CONTAINER_RUNNING
	h.rt = newRuntime(t, h.socket, func(r *runtime) { r.add(sb, listed, late, ours, meanwhile) })
	enginetest.Eventually(t, "reconnect", h.engine.Connected)
	counted("default/web/late", "default/web/listed", "default/web/meanwhile")
}
