// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/pod"
	"github.com/koord-rt/koord-rt/policy/policytest"
)

// What is remembered is what the policies say of the View that is followed, and nothing of an earlier one: the same pod and
// container, whose batch resources another View knows to be twice as much.
func TestMemoFollowsTheView(t *testing.T) {
	t.Parallel()
	p := policytest.Pod(protocol.QoSBE)
	c := policytest.Container(p)
	view := func(milli, memory int64) *node.View {
		v := policytest.View()
		v.Pods = map[string]node.PodSpec{p.UID: {Extended: map[string]protocol.ExtendedContainer{c.Name: policytest.Batch(milli, memory)}}}
		return v
	}
	small, large := view(500, 1<<30), view(1000, 2<<30)
	if container.BaseQuota(small, p, c) == container.BaseQuota(large, p, c) || pod.BaseQuota(small, p) == pod.BaseQuota(large, p) ||
		container.BaseMemory(small, p, c) == container.BaseMemory(large, p, c) {
		t.Fatal("the Views say the same: nothing would be tested")
	}
	var m memo
	for _, v := range []*node.View{small, small, large, small} {
		m.follow(v)
		if got, want := m.quota(p, c), container.BaseQuota(v, p, c); got != want {
			t.Errorf("the container's quota is %d, want %d", got, want)
		}
		if got, want := m.quota(p, nil), pod.BaseQuota(v, p); got != want {
			t.Errorf("the pod's quota is %d, want %d", got, want)
		}
		if got, want := m.memory(p, c), container.BaseMemory(v, p, c); got != want {
			t.Errorf("the container's memory is %+v, want %+v", got, want)
		}
	}
}
