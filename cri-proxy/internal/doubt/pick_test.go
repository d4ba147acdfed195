// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package doubt

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// asked is what the kubelet wants: µs per 100 ms, shares, bytes.
func asked(quota, shares, memory int64) workload.Resources {
	return workload.Resources{Quota: unit.Some(quota), Shares: unit.Some(shares), MemoryLimit: unit.Some(memory), OOMScoreAdj: unit.Some(5)}
}

// unlimited is a state of a container whose quota we take away, which leaves nothing of the kubelet's in its place.
func unlimited(quota, shares, memory int64) state {
	base := asked(quota, shares, memory)
	return state{&workload.Container{ID: "c", Base: base}, []*protocol.Applied{{
		Set: map[string]string{"cpu.quota": "-1 cpuset"}, Base: map[string]string{"cpu.quota": strconv.FormatInt(quota, 10)},
	}}}
}

func TestPick(t *testing.T) {
	t.Parallel()
	before, after := unlimited(50000, 512, 1<<30), unlimited(150000, 1536, 1<<30)
	first := unlimited(20000, 204, 1<<29)
	unified := func(s state, high string) state {
		c := *s.c
		c.Base.Unified = map[string]string{"memory.high": high}
		return state{&c, s.marks}
	}
	for name, tt := range map[string]struct {
		states []state
		// record is what the runtime has, with our values.
		record workload.Resources
		want   workload.Resources
		none   bool
	}{
		"it was done":     {[]state{after, before}, asked(-1, 1536, 1<<30), after.c.Base, false},
		"it was not done": {[]state{after, before}, asked(-1, 512, 1<<30), before.c.Base, false}, // the quota alone does not tell
		"the last but one": {
			[]state{after, before, first}, asked(-1, 204, 1<<29), first.c.Base, false,
		},
		"nothing differs":     {[]state{unlimited(7000, 512, 1<<30), before}, asked(-1, 512, 1<<30), asked(7000, 512, 1<<30), false},
		"somebody else's":     {[]state{after, before}, asked(70000, 700, 1<<31), asked(70000, 700, 1<<31), false},
		"no OOM score":        {[]state{after, before}, workload.Resources{Shares: unit.Some(9)}, workload.Resources{Shares: unit.Some(9), OOMScoreAdj: unit.Some(5)}, false},
		"nothing told":        {[]state{after, before}, workload.Resources{OOMScoreAdj: unit.Some(5)}, workload.Resources{}, true},
		"unified tells":       {[]state{unified(before, "2"), unified(before, "1")}, unified(unlimited(-1, 512, 1<<30), "1").c.Base, unified(before, "1").c.Base, false},
		"unified is not told": {[]state{unified(after, "2"), unified(before, "1")}, asked(-1, 512, 1<<30), unified(before, "1").c.Base, false},
		"unified of the other": {
			[]state{unified(after, "2"), before}, asked(3, 3, 3), unified(unlimited(3, 3, 3), "2").c.Base, false,
		},
	} {
		c, ok := pick(tt.states, func(known ...*protocol.Applied) *workload.Container {
			out := &workload.Container{ID: "c", Base: tt.record}
			mark.Rebase(&out.Base, known...)
			return out
		})
		if ok == tt.none {
			t.Errorf("%s: ok is %v", name, ok)
			continue
		}
		if tt.none {
			continue
		}
		if diff := cmp.Diff(tt.want, c.Base); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
