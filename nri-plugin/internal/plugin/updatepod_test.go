// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine/enginetest"
)

// A runtime that does not tell of the pod's own resize: after the container's, the kubelet writes the pod's cgroup some
// time after the reply, and the pod gets back what it should have without waiting for the drift check.
func TestResizeWithoutUpdatePod(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	r := h.views.Load().Runtime
	r.Fields.UpdatePod = false // containerd 1.7 and 2.0
	h.views.SetRuntime(r)
	sb := h.pod(t, "lsr", "LSR", map[string]string{protocol.AnnotationResourceStatus: `{"cpuset":"0-3"}`})
	ctr := ctrOf(sb, "app")
	h.create(t, sb, ctr)
	must(t, h.start(t, sb, ctr))
	free := func() bool { return h.tree.Get(t, sb.Linux.CgroupParent, "cpu.max") == "max 100000" }
	enginetest.Eventually(t, "a pod without quota", free)
	_, err := h.rt.UpdateContainer(t.Context(), &api.UpdateContainerRequest{
		Pod: sb, Container: ctr, LinuxResources: resources(512, 100000, 1<<30),
	})
	must(t, err)
	// Twice: the first write may meet what the update itself has left to be done.
	for range 2 {
		h.tree.Set(t, sb.Linux.CgroupParent, "cpu.max", "100000 100000")
		enginetest.Eventually(t, "a pod without quota after the kubelet's write", free)
	}
}
