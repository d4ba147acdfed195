// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package llc_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/policy/llc"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// A BE pod's own group is no way out of its class's: 0-30 % of the cache (3f) and 25 % of the bandwidth (30 in steps of 10).
func TestPodGroupWithinClass(t *testing.T) {
	t.Parallel()
	rng := func(start, end int64) *protocol.Range { return &protocol.Range{Start: start, End: end} }
	const l3, mb = "koordlet-uid-1 L3", "koordlet-uid-1 MB"
	lots, little := int64(100), int64(10)
	for name, tc := range map[string]struct {
		class  protocol.QoS
		ask    protocol.Resctrl
		change func(*node.View)
		want   map[string]string
		held   bool
	}{
		"the documented example": {ask: protocol.Resctrl{LLC: rng(20, 60)}, want: map[string]string{l3: "0=30;1=30", mb: "0=30;1=30"}, held: true},
		"less":                   {ask: protocol.Resctrl{LLC: rng(0, 10), MBPercent: &little}, want: map[string]string{l3: "0=3;1=3", mb: "0=10;1=10"}},
		"all of it":              {ask: protocol.Resctrl{LLC: rng(0, 100), MBPercent: &lots}, want: map[string]string{l3: "0=3f;1=3f", mb: "0=30;1=30"}, held: true},
		"beside it":              {ask: protocol.Resctrl{LLC: rng(50, 100), MBPercent: &little}, want: map[string]string{l3: "0=3f;1=3f", mb: "0=10;1=10"}, held: true},
		"nothing named":          {ask: protocol.Resctrl{}}, // the class's group has just that
		"one cache":              {ask: protocol.Resctrl{LLCPerCache: map[int]protocol.Range{1: *rng(0, 90)}, MBPerCache: map[int]int64{0: 100}, MBPercent: &little}, want: map[string]string{l3: "0=3f;1=3f", mb: "0=30;1=10"}, held: true},
		"no bandwidth control":   {ask: protocol.Resctrl{LLC: rng(0, 10)}, change: func(v *node.View) { v.Kernel.RDT.MB = false }, want: map[string]string{l3: "0=3;1=3"}},
		"the node allows it":     {ask: protocol.Resctrl{LLC: rng(0, 50)}, change: func(v *node.View) { v.Limits.BeyondClass = true }, want: map[string]string{l3: "0=3ff;1=3ff"}},
		"the class has none":     {ask: protocol.Resctrl{LLC: rng(0, 50)}, change: func(v *node.View) { pt.YAML(t, v, "") }, want: map[string]string{l3: "0=3ff;1=3ff"}},
		"LS":                     {class: protocol.QoSLS, ask: protocol.Resctrl{LLC: rng(0, 50)}, want: map[string]string{l3: "0=3ff;1=3ff"}},
	} {
		class := tc.class
		if class == protocol.QoSNone {
			class = protocol.QoSBE
		}
		v, p := pt.YAML(t, pt.View(), strategyText), pt.Pod(class)
		if tc.change != nil {
			tc.change(v)
		}
		p.Ask.Resctrl = &tc.ask
		_, pl, problems := llc.PodGroup(v, p)
		t.Log(name)
		same(t, pl, tc.want)
		for i := range pl {
			if strings.Contains(pl[i].Reason, "held within class BE's (limits.beyondClass)") != tc.held {
				t.Errorf("%s: reason %q", name, pl[i].Reason)
			}
		}
		if len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}
