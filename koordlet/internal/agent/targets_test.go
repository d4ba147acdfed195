// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/collect"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Everybody with a cgroup is measured, host applications too.
func TestTargets(t *testing.T) {
	t.Parallel()
	spec := strategy.Effective(strategy.Spec{HostApplications: []strategy.HostApplication{
		{Name: "nginx", QoS: "LS"}, {Name: "spark", QoS: "BE", CgroupPath: &strategy.CgroupPath{Base: strategy.BaseKubepodsBestEff, RelativePath: "spark"}},
	}})
	members := []engine.Member{
		{
			Pod: &workload.Pod{
				UID: "be", KubeQoS: protocol.KubeBestEffort, Cgroup: "/kubepods/besteffort/podbe", QoSCgroup: "/kubepods/besteffort", PID: 7,
				Ask: protocol.Ask{QoS: protocol.QoSBE},
			},
			Containers: []*workload.Container{{ID: "c", Cgroup: "/kubepods/besteffort/podbe/c"}},
		},
		{Pod: &workload.Pod{UID: "unplaced"}},
	}
	want := collect.Targets{
		BestEffort: "/kubepods/besteffort",
		Pods: []collect.Pod{{
			UID: "be", Cgroup: "/kubepods/besteffort/podbe", QoS: protocol.QoSBE, Priority: protocol.PriorityBatch, PID: 7,
			Containers: []collect.Container{{ID: "c", Cgroup: "/kubepods/besteffort/podbe/c"}},
		}},
		HostApps: []collect.HostApp{
			{Name: "nginx", Cgroup: "/host-latency-sensitive/nginx"}, {Name: "spark", Cgroup: "/kubepods/besteffort/spark"},
		},
	}
	got := targets(&node.View{Strategy: &spec}, members, pods.New(pods.Options{}).Snapshot())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The list of whom to measure is made when something that it is made of has changed, and now and then.
func TestFollowed(t *testing.T) {
	t.Parallel()
	one, two := &strategy.Spec{}, &strategy.Spec{}
	var f followed
	at := followed{roster: 1, pods: 1, spec: one}
	for what, change := range []func(){func() {}, func() { at.roster++ }, func() { at.pods++ }, func() { at.spec = two }} {
		change()
		if !f.news(at) {
			t.Errorf("change %d is no news", what)
		}
		for tick := 1; tick < refollow; tick++ {
			if f.news(at) {
				t.Errorf("change %d, tick %d: made anew", what, tick)
			}
		}
		if !f.news(at) || f.news(at) {
			t.Errorf("change %d: not made anew once after %d ticks", what, refollow)
		}
	}
}

// The kubelet is asked when pods have come, gone, or changed places, and at no other tick.
func TestChanged(t *testing.T) {
	t.Parallel()
	a := New(Options{})
	of := func(uids ...string) (out []engine.Member) {
		for _, uid := range uids {
			out = append(out, engine.Member{Pod: &workload.Pod{UID: uid}})
		}
		return out
	}
	for i, step := range []struct {
		members []engine.Member
		want    bool
	}{{of(), false}, {of("a"), true}, {of("a"), false}, {of("a", "b"), true}, {of("b", "c"), true}, {of("b", "c"), false}, {of(), true}} {
		if got := a.changed(step.members); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
}
