// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/interference"
	"github.com/koord-rt/koord-rt/policy/netqos"
)

// TestPassed: what best-effort pods send comes out as far as their own limit lets it, and then in parts of what their class may have. A
// pod of no class is the system's, others are left alone, and before the first look at the uplink nothing is known.
func TestPassed(t *testing.T) {
	t.Parallel()
	pods := func() []interference.Pod {
		out := []interference.Pod{
			{Name: "x/a", QoS: protocol.QoSBE}, {Name: "x/b", QoS: protocol.QoSBE}, {Name: "x/limited", QoS: protocol.QoSBE},
			{Name: "x/other", QoS: protocol.QoSBE}, {Name: "x/ls", QoS: protocol.QoSLS}, {Name: "x/unseen", QoS: protocol.QoSBE},
		}
		for i, mb := range []float64{600, 200, 900, 3000, 5000} {
			out[i].Used[interference.Network] = unit.Got(interference.Level(mb * 1e6))
		}
		return out
	}
	be := func(name string, limit unit.BitRate) shape.Pod {
		return shape.Pod{Name: name, Class: shape.BE, Limit: limit}
	}
	var s State
	s.tick.Network = netqos.Output{Asked: true, Directions: []netqos.Direction{
		{Key: "eth0/ingress", Shape: shape.Shape{Classes: []shape.Class{{Name: shape.BE, Ceil: 8}}}},
		{
			Key:   "eth0/egress",
			Shape: shape.Shape{Classes: []shape.Class{{Name: shape.System, Ceil: 16e9}, {Name: shape.BE, Ceil: 4e9}}},
			Pods:  []shape.Pod{be("x/a", 0), be("x/b", 0), be("x/limited", 1600e6), be("x/unseen", 0)},
		},
	}}
	got := pods()
	s.passed(got) // 600, 200 and 200 of 500 MB/s; 2000 MB/s is the link's
	for i, want := range []float64{300, 100, 100, 2000, 5000} {
		if u := got[i].Used[interference.Network]; !u.OK || u.V != interference.Level(want*1e6) {
			t.Errorf("%s: %+v, want %g MB/s", got[i].Name, u, want)
		}
	}
	if u := got[5].Used[interference.Network]; u.OK {
		t.Errorf("%s: %+v, it was not measured", got[5].Name, u)
	}
	got = pods()
	(&State{}).passed(got)
	for i := range got {
		if u := got[i].Used[interference.Network]; u.OK != (got[i].QoS != protocol.QoSBE) {
			t.Errorf("before the first look %s: %+v", got[i].Name, u)
		}
	}
}
