// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/policytest"
)

// Each loop has a condition that says what it does under the strategy, and why not.
func TestLoopStates(t *testing.T) {
	t.Parallel()
	const all = "{resourceUsedThresholdWithBE: {enable: true}, cpuBurstStrategy: {policy: auto}}"
	for name, tc := range map[string]struct {
		yaml      string
		tune      bool
		noReclaim string
		tickAlone string
		change    func(*node.View)
		want      map[string]string
	}{
		"nothing asked for": {want: map[string]string{
			"cpu-suppress": "off: " + notEnabled, "cfs-quota-burst": "off: cpuBurstStrategy.policy is none",
			"memory-reclaim": "off: " + notEnabled + ", nor is memoryQOS of a class",
			"interference":   "degraded: who is disturbed is told, nobody is throttled: " + notEnabled,
		}},
		"everything": {yaml: all, want: map[string]string{
			"cpu-suppress": "active: ", "cfs-quota-burst": "active: ", "memory-reclaim": "active: ", "interference": "active: ",
		}},
		"tuning": {tune: true, want: map[string]string{"cfs-quota-burst": "active: tuning only"}},
		"a class only": {yaml: "{resourceQOSStrategy: {beClass: {memoryQOS: {enable: true}}}}", want: map[string]string{
			"memory-reclaim": "active: ", "cpu-suppress": "off: " + notEnabled,
		}},
		"cgroup v1": {yaml: all, noReclaim: "no file", tickAlone: noUnified, change: func(v *node.View) {
			v.Kernel.Cgroup, v.Kernel.Knobs[plan.MemoryHigh] = node.CgroupV1, node.Support{Why: "none"}
		}, want: map[string]string{"cpu-suppress": "degraded: " + noUnified, "memory-reclaim": "unsupported: no file"}},
		"the kubelet's static CPU manager": {yaml: all, tickAlone: noUnified, change: func(v *node.View) {
			v.Kernel.KubeletStaticCPU, v.Modes[protocol.FeatureCPUSet] = true, node.Off
		}, want: map[string]string{"cpu-suppress": "degraded: the kubelet's static CPU manager sets the CPUs of every container: a quota (cfsQuota) holds best effort down instead of a set; " + noUnified}},
		"static, and no quota either": {yaml: all, change: func(v *node.View) {
			v.Kernel.KubeletStaticCPU, v.Ceded = true, plan.KnobSet(plan.CPUQuota)
		}, want: map[string]string{"cpu-suppress": "off: cpu.quota is ceded to another program"}},
		"an old kernel": {yaml: all, noReclaim: "no file", want: map[string]string{"memory-reclaim": "degraded: memory.high alone: no file"}},
		"observed": {yaml: all, change: func(v *node.View) {
			v.Modes[protocol.FeatureCPUSet], v.Modes[protocol.FeatureBatch] = node.Observe, node.Observe
			v.Modes[protocol.FeatureBurst], v.Modes[protocol.FeatureMemory] = node.Off, node.Off
		}, want: map[string]string{
			"cpu-suppress": "observe: feature cpuset is observed only", "cfs-quota-burst": "off: feature cpu-burst is switched off in the configuration",
			"memory-reclaim": "off: feature memory-qos does not write: reclaim has nothing to observe",
			"interference":   "degraded: who is disturbed is told, nobody is throttled: feature batch does not write cpu.quota",
		}},
		"by quota, ceded": {
			yaml:   "{resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota}}",
			change: func(v *node.View) { v.Ceded = plan.KnobSet(plan.CPUQuota) },
			want:   map[string]string{"cpu-suppress": "off: cpu.quota is ceded to another program"},
		},
	} {
		v := policytest.YAML(t, policytest.View(), tc.yaml)
		if tc.change != nil {
			tc.change(v)
		}
		cfg := config.DefaultKoordlet()
		cfg.Tune = tc.tune
		got := map[string]string{}
		for _, s := range loopStates(&cfg, v, tc.noReclaim, tc.tickAlone) {
			if _, asked := tc.want[s.Feature]; asked {
				got[s.Feature] = s.State + ": " + s.Detail
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
