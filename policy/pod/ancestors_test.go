// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/pod"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// The sums that containers give and what the pod derives beforehand are the same for a Guaranteed pod.
func TestSumsAgreeWithWhatIsDerived(t *testing.T) {
	t.Parallel()
	v, p := file(t, pt.View(), m5), pt.Pod(protocol.QoSLSR)
	before, _ := pod.Decide(v, p, pod.Sums{})
	c := pt.Container(p)
	pl, _ := container.Decide(v, p, c)
	var sum pod.Sums
	sum.Add(pl, c)
	if sum.Count != 1 || sum.Min != 8*pt.GiB || sum.Low != 8*pt.GiB || sum.High != 10307919872 || !sum.Tight {
		t.Errorf("sums %+v", sum)
	}
	after, _ := pod.Decide(v, p, sum)
	if before.String() != after.String() {
		t.Errorf("before\n%safter\n%s", before, after)
	}
	for i := range pl {
		pl[i].Observe = true
	}
	sum = pod.Sums{}
	if sum.Add(pl, c); sum.Min != 0 || sum.Tight {
		t.Errorf("observed settings count: %+v", sum)
	}
}

func TestAncestors(t *testing.T) {
	t.Parallel()
	const root, burstable = "/kubepods", "/kubepods/burstable"
	pods := []pod.Protection{
		{QoSCgroup: burstable, KubepodsCgroup: root, Min: pt.GiB, Low: pt.GiB},
		{QoSCgroup: root, KubepodsCgroup: root, Min: 2 * pt.GiB, Low: 3 * pt.GiB},
		{QoSCgroup: "/kubepods/besteffort", KubepodsCgroup: root},
	}
	v := pt.View()
	got := map[string]string{}
	for _, s := range pod.Ancestors(v, pods) {
		if s.Target.Level != plan.LevelQoS || s.Owner != protocol.FeatureMemory {
			t.Errorf("setting %s", &s)
		}
		got[s.Target.Cgroup+" "+s.Knob.String()] = s.Value.String()
	}
	expect := map[string]string{
		root + " memory.min": "3221225472", root + " memory.low": "4294967296",
		burstable + " memory.min": "1073741824", burstable + " memory.low": "1073741824",
		"/kubepods/besteffort memory.min": "0", "/kubepods/besteffort memory.low": "0",
	}
	if len(got) != len(expect) {
		t.Errorf("got %v", got)
	}
	for k, w := range expect {
		if got[k] != w {
			t.Errorf("%s = %q, want %q", k, got[k], w)
		}
	}
	for name, change := range map[string]func(*node.View){
		"kubelet": func(v *node.View) { v.Kernel.KubeletMemoryQoS = true },
		"off":     func(v *node.View) { v.Modes[protocol.FeatureMemory] = node.Off },
		"ceded":   func(v *node.View) { v.Ceded = plan.KnobSet(plan.MemoryMin, plan.MemoryLow) },
	} {
		v := pt.View()
		change(v)
		if pl := pod.Ancestors(v, pods); len(pl) > 0 {
			t.Errorf("%s: %s", name, pl)
		}
	}
}
