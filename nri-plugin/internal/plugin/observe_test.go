// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
)

// What is observed of a device, which is in no file of the kernel, is not given and told all the same.
func TestObservedDevice(t *testing.T) {
	t.Parallel()
	h := newHostWith(t, "6.1", nil, func(h *host, o *engine.Options) {
		o.Config.Features = map[string]config.Mode{protocol.FeatureDevices.String(): config.ModeObserve}
		static := h.machine.Static(t, hostKnobs()...)
		static.Kernel.Devices = []node.DeviceNode{{Type: protocol.DeviceGPU, Path: "/dev/nvidia0", Major: 195}}
		spec, err := strategy.Parse([]byte(nodeStrategy))
		must(t, err)
		o.Views = engine.NewViews(o.Config, static, &spec, "test")
	})
	h.run(t)
	sb := h.pod(t, "gpu", "LS", map[string]string{
		protocol.AnnotationDeviceAllocated: `{"gpu":[{"minor":0,"id":"GPU-0","resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"}}]}`,
	})
	if adj := h.create(t, sb, ctrOf(sb, "app")); len(adj.GetEnv()) > 0 || len(adj.GetLinux().GetDevices()) > 0 {
		t.Errorf("observed, yet given: %v", adj)
	}
	enginetest.Eventually(t, "device and variable in the ledger", func() bool {
		seen := map[string]bool{}
		for _, r := range h.journal.All() {
			if r.Via == journal.ViaObserve && r.Owner == protocol.FeatureDevices.String() {
				seen[r.Knob+"["+r.Key+"]"] = r.Want != "" && r.Reason != ""
			}
		}
		return seen["device[/dev/nvidia0]"] && seen["env[NVIDIA_VISIBLE_DEVICES]"]
	})
}
