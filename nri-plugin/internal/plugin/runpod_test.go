// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/engine/enginetest"
)

// A pod is taken in after the reply. One that is removed before that must not stay.
func TestPodRemovedAtOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t, "6.1")
	h.run(t)
	for range 50 {
		sb := h.sandbox(t, "short", "BE", nil)
		must(t, h.plugin.RunPodSandbox(t.Context(), sb))
		must(t, h.plugin.RemovePodSandbox(t.Context(), sb))
	}
	last := h.pod(t, "last", "BE", nil)
	enginetest.Eventually(t, "the last pod is known", func() bool { return h.engine.Status().Counters["pods"] > 0 })
	must(t, h.rt.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{Pod: last}))
	enginetest.Eventually(t, "no pod is known", func() bool { return h.engine.Status().Counters["pods"] == 0 })
}
