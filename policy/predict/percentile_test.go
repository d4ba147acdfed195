// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// Each class is read at its own percentile, a pod at that of its class, and a QoS class at that of the priority class that its pods have
// without another; who has none of its own at the resource's.
func TestPercentileOfEachClass(t *testing.T) {
	t.Parallel()
	cfg := Default()
	cfg.ColdStart, cfg.Margin = 0, Margin{}
	cfg.CPU.Classes = PerClass[int]{Prod: 60, Mid: 90, Free: 100, System: 98}
	cfg.Memory.Classes = PerClass[int]{Batch: 60}
	s := NewSet(cfg)
	for i := range 100 {
		v := float64(i)
		in := Training{Node: used(6*v, 6*v*gib)}
		for _, c := range classes {
			in.Pods = append(in.Pods, pod("uid of "+c.String(), c, used(v, v*gib)))
		}
		s.Train(minute(i), in)
	}
	request := Resources{1_000_000, 1000 * gib}
	got := s.Predict(minute(100), request, []Pod{
		{"uid of koord-prod", protocol.PriorityProd, protocol.QoSLS, minute(0), false, request},
		{"uid of ", protocol.PriorityNone, protocol.QoSNone, minute(0), false, request},
	})
	// Of 0..99, the later ones a little heavier: at most one bucket of 5 % above.
	near := func(what string, got Resources, cores, gibs float64) {
		t.Helper()
		for _, r := range [][2]float64{{float64(got.CPU) / 1000, cores}, {float64(got.Memory) / gib, gibs}} {
			if r[0] < r[1]-1 || r[0] > (r[1]+1)*1.06 {
				t.Errorf("%s: %+v, want about %v cores and %v GiB", what, got, cores, gibs)
			}
		}
	}
	want := map[string][2]float64{
		"koord-prod": {61, 98}, "koord-mid": {90, 98}, "koord-batch": {95, 61}, "koord-free": {99, 98}, "none": {95, 98},
	}
	for _, sum := range got.ByPriority {
		near(sum.Class, sum.Peak, want[sum.Class][0], want[sum.Class][1])
	}
	for _, sum := range got.ByQoS {
		switch sum.Class {
		case "LS": // prod and mid
			near(sum.Class, sum.Peak, 2*61, 2*98)
		case "BE": // batch and free
			near(sum.Class, sum.Peak, 2*95, 2*61)
		}
	}
	near("pods", got.Pods.Peak, 61+95, 98+98)
	near("classes", got.Classes.Peak, 61+95, 98+98)
	// What the classes leave of the requests of prod: their peaks and the system's, which is at its own.
	near("classes use", request.less(got.Classes.Reclaimable), 61+95+98, 98+98+98)
}
