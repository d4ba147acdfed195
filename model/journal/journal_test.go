// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package journal_test

import (
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// The machine's own clock decides within a boot, where both records have it; the time of day decides else.
func TestBefore(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(boot string, up uint64, minutes int) journal.Record {
		return journal.Record{Boot: boot, Up: up, Time: noon.Add(time.Duration(minutes) * time.Minute)}
	}
	for name, tc := range map[string]struct {
		a, b journal.Record
		want bool
	}{
		"the clock was set back":         {at("x", 1, 60), at("x", 2, 0), true},
		"the clock was set back, turned": {at("x", 2, 0), at("x", 1, 60), false},
		"the same moment":                {at("x", 1, 0), at("x", 1, 1), false},
		"another boot":                   {at("x", 9, 0), at("y", 1, 1), true},
		"another boot, turned":           {at("y", 1, 1), at("x", 9, 0), false},
		"one is of no boot":              {at("", 1, 60), at("x", 2, 0), true},
		"one is of no boot, turned":      {at("x", 2, 0), at("", 1, 60), false},
		"the first has no clock":         {at("x", 0, 1), at("x", 5, 0), false},
		"the second has no clock":        {at("x", 5, 0), at("x", 0, 1), true},
	} {
		if got := tc.a.Before(&tc.b); got != tc.want {
			t.Errorf("%s: before is %t", name, got)
		}
	}
}

// The machine's own clock tells the age, where the record has it of this boot; the time of day does else.
func TestAge(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	const up, minute = 10 * time.Hour, uint64(time.Minute)
	for name, tc := range map[string]struct {
		record journal.Record
		want   time.Duration
	}{
		"five minutes ago":                        {journal.Record{Boot: "this", Up: 595 * minute, Time: noon.Add(-5 * time.Minute)}, 5 * time.Minute},
		"and the clock was set two hours on":      {journal.Record{Up: 595 * minute, Time: noon.Add(-125 * time.Minute)}, 5 * time.Minute},
		"and the clock was set two hours back":    {journal.Record{Up: 595 * minute, Time: noon.Add(115 * time.Minute)}, 5 * time.Minute},
		"a writer that does not stamp it":         {journal.Record{Time: noon.Add(-5 * time.Minute)}, 5 * time.Minute},
		"another boot, which was younger":         {journal.Record{Boot: "that", Up: 595 * minute, Time: noon.Add(-72 * time.Hour)}, 72 * time.Hour},
		"another boot":                            {journal.Record{Up: 601 * minute, Time: noon.Add(-5 * time.Minute)}, 5 * time.Minute},
		"more than there can be, which is no age": {journal.Record{Up: 1 << 63, Time: noon.Add(-5 * time.Minute)}, 5 * time.Minute},
	} {
		if got := tc.record.Age(noon, up, "this"); got != tc.want {
			t.Errorf("%s: %s ago, want %s", name, got, tc.want)
		}
	}
}

// A record whose knob this release does not know is about nothing.
func TestID(t *testing.T) {
	t.Parallel()
	r := journal.Record{Target: plan.Target{Level: plan.LevelPod, Cgroup: "/pod"}, Knob: plan.IOReadBPS.String(), Key: "8:0"}
	if id, ok := r.ID(); !ok || id != (plan.ID{Target: r.Target, Knob: plan.IOReadBPS, Key: "8:0"}) {
		t.Errorf("id %+v, %t", id, ok)
	}
	r.Knob = "of tomorrow"
	if id, ok := r.ID(); ok {
		t.Errorf("an unknown knob has id %+v", id)
	}
}
