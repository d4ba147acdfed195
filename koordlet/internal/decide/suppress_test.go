// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"slices"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods/podstest"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// Best effort that nobody has told of is told by the class's cgroup: what that uses beyond the pods in it, of whatever class they are. A best-effort pod
// with requests stands elsewhere.
func TestWhoIsNotKnownYet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kube  protocol.KubeQoS
		class float64
		want  unit.MilliCPU
		app   float64
	}{
		"an application in the class": {kube: protocol.KubeBestEffort, class: 4, want: 2000, app: 1},
		"not read":                    {kube: protocol.KubeBestEffort, want: 3000}, "all are known": {kube: protocol.KubeBestEffort, class: 3, want: 3000},
		"one is not": {kube: protocol.KubeBestEffort, class: 5, want: 1000}, "one that stands elsewhere": {kube: protocol.KubeBurstable, class: 2, want: 1000},
	} {
		f, w := facts(strategy.SuppressCPUSet)
		f.Members[0].Pod.KubeQoS = tc.kube
		if tc.app > 0 {
			f.View.Strategy.HostApplications = []strategy.HostApplication{{
				Name: "app", QoS: "BE", CgroupPath: &strategy.CgroupPath{Base: "KubepodsBesteffort", RelativePath: "app"},
			}}
			w.Append([]sample.Sample{{Subject: sample.OfHostApp("app"), Metric: sample.CPUUsage, Value: tc.app, At: now - unit.Second/2}})
		}
		measure(w, now-unit.Second/2, 14, 8, 3)
		if tc.class > 0 {
			w.Append([]sample.Sample{{Subject: sample.OfQoS(protocol.QoSBE), Metric: sample.ClassCPU, Value: tc.class, At: now - unit.Second/2}})
		}
		if _, out := decide.Step(decide.State{}, f); out.Suppress.System != tc.want {
			t.Errorf("%s: %d for the system, want %d: %s", name, out.Suppress.System, tc.want, out.Suppress.Reason)
		}
	}
}

// Beside the kubelet's static CPU manager, which gives every container its CPUs, the default policy holds the tier down by a quota, and
// evictions take that for its limit. A set that was in force before becomes as large a quota.
func TestSuppressBesideStaticCPUManager(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCPUSet)
	measure(w, now-unit.Second/2, 14, 8, 3)
	before, out := decide.Step(decide.State{}, f)
	if out.Suppress.Mode != suppress.CPUSet || decide.NoSet(f.View) != "" {
		t.Fatalf("without it: %+v, %q", out.Suppress, decide.NoSet(f.View))
	}
	f.View.Kernel.KubeletStaticCPU = true
	for name, s := range map[string]decide.State{"afresh": {}, "after a set": before} {
		_, out := decide.Step(s, f)
		if len(out.Tier) != 1 || out.Tier[0].Knob != plan.CPUQuota || out.Tier[0].Value != plan.Int(980000) || !out.Dynamic.BECPUs.Empty() || !out.Dynamic.BEQuota {
			t.Errorf("%s: tier %v, set %s", name, out.Tier, out.Dynamic.BECPUs)
		}
		limit := slices.IndexFunc(out.Samples, func(s sample.Sample) bool { return s.Metric == sample.CPULimit })
		if limit < 0 || out.Samples[limit].Value != 9.8 {
			t.Errorf("%s: evictions take %v for the limit", name, out.Samples)
		}
	}
	// A BE pod that stands elsewhere is not held by the quota of the class: the class gets that much less.
	f.Members[0].Pod.KubeQoS = protocol.KubeBurstable
	f.Members = append(f.Members, member("other", protocol.QoSBE, protocol.KubeBestEffort))
	if _, out := decide.Step(decide.State{}, f); len(out.Tier) != 1 || out.Tier[0].Value != plan.Int(680000) {
		t.Errorf("beside a BE pod with requests: %v", out.Tier)
	}
	if decide.NoSet(f.View) == "" {
		t.Error("nobody is told")
	}
}

// What the kubelet's static CPU manager has given to a pod alone is in no pool of LS pods. Entries of pods that have gone, and of a class of
// ours, do not count; before the pods are known all do. What BE may use is without LSE's CPUs only, as upstream has it.
func TestPoolsWithoutTheKubeletsCPUs(t *testing.T) {
	t.Parallel()
	f, w := facts(strategy.SuppressCPUSet)
	measure(w, now-unit.Second/2, 14, 8, 3)
	f.View.Claims.LSE = topo.Range(0, 1)
	f.KubeletCPUs = map[string]topo.CPUSet{"own": topo.Range(4, 5), "lsr": topo.Range(8, 9), "gone": topo.Range(12, 13)}
	pods := podstest.Snapshot(t, `{"metadata":{"uid":"own","name":"own","namespace":"x"}}`,
		`{"metadata":{"uid":"lsr","name":"lsr","namespace":"x","labels":{"koordinator.sh/qosClass":"LSR"}}}`)
	for _, tc := range []struct{ name, want string }{{"pods not known", "2-3,6-7,10-11,14-15"}, {"known", "2-3,6-15"}} {
		_, out := decide.Step(decide.State{}, f)
		if got := out.Dynamic.SharePools; len(got) != 2 || got[0].CPUs.String() != tc.want {
			t.Errorf("%s: share pools %+v, want %s", tc.name, got, tc.want)
		}
		if got := out.Dynamic.BESharePools; len(got) != 2 || got[0].CPUs.String() != "2-15" {
			t.Errorf("%s: best-effort share pools: %+v", tc.name, got)
		}
		f.Pods = pods
	}
}
