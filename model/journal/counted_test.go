// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package journal_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Ours is what a pod's UID names, where containers of ours were: not what a hook server or another tool has named, nor elsewhere.
func TestCounted(t *testing.T) {
	t.Parallel()
	var c journal.Counted
	for _, r := range []journal.Record{
		{Knob: plan.RDTClass.String(), Want: "BE", Via: journal.ViaRuntime},
		{Knob: plan.RDTClass.String(), Want: "LS", Via: journal.ViaObserve},
		{Knob: plan.RDTMonGroup.String(), Want: "uid-1", Target: plan.Target{Pod: "uid-1"}, Via: journal.ViaDirect},
		{Knob: plan.RDTMonGroup.String(), Want: "uid-2", Target: plan.Target{Pod: "uid-2"}, Via: journal.ViaObserve},
		{Knob: plan.RDTMonGroup.String(), Want: "tool", Target: plan.Target{Pod: "uid-1"}, Via: journal.ViaDirect},
		{Target: plan.Target{Pod: "uid-1"}, Via: journal.ViaGone},
	} {
		c.Note(&r)
	}
	var all journal.Counted
	all.Add("LSR", "uid-3")
	all.Join(&c)
	for _, tc := range []struct {
		group, name string
		ours        bool
	}{{"BE", "uid-1", true}, {"", "uid-1", true}, {"LS", "uid-1", false}, {"BE", "uid-2", false}, {"BE", "tool", false}, {"LSR", "uid-3", true}} {
		if got := all.Has(tc.group, tc.name); got != tc.ours {
			t.Errorf("%s/mon_groups/%s: ours %t, want %t", tc.group, tc.name, got, tc.ours)
		}
	}
	if all.Keep(map[string]bool{"uid-2": true}); !all.Empty() {
		t.Error("keeps what is nowhere any more")
	}
}
