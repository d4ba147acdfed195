// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// health is the strategy of a cluster that says nothing about it.
func health() HealthStrategy {
	return HealthStrategy{
		Stale: 5 * unit.Minute, Degrade: 15 * unit.Minute, Margin: 20, Contradicts: 10 * unit.Minute,
		Contradiction: 50, Memory: 0, Disk: 50, PIDs: 50, Evictions: 3, Recovery: 5 * unit.Minute,
	}
}

// TestWeighSigns: what each sign alone makes of a node that was sound, and what they make of it together.
func TestWeighSigns(t *testing.T) {
	t.Parallel()
	const now = 100 * unit.Minute
	for name, tc := range map[string]struct {
		age       unit.Micros
		evictions int64
		change    func(*Signs)
		want      unit.Percent
		reasons   string
		again     unit.Micros
	}{
		"nothing":                      {age: unit.Minute, want: 100, again: 4 * unit.Minute},
		"a moment before it is stale":  {age: 5*unit.Minute - 1, want: 100, again: 1},
		"stale":                        {age: 5 * unit.Minute, want: 75, reasons: "stale-report", again: 200 * unit.Second},
		"a third on":                   {age: 5*unit.Minute + 200*unit.Second, want: 50, reasons: "stale-report", again: 200 * unit.Second},
		"two thirds on":                {age: 5*unit.Minute + 400*unit.Second, want: 25, reasons: "stale-report"},
		"to the end":                   {age: 15 * unit.Minute, want: 25, reasons: "stale-report"},
		"a little ahead":               {age: -4 * unit.Minute, want: 100},
		"ahead":                        {age: -10 * unit.Minute, want: 50, reasons: "stale-report"},
		"it was ahead, and is of now":  {change: func(s *Signs) { s.Seen.For = unit.Some(int64(10 * unit.Minute)) }, want: 50, reasons: "stale-report", again: 100 * unit.Second},
		"a little ahead, and seen":     {age: -4 * unit.Minute, change: func(s *Signs) { s.Seen.For = unit.Some(0) }, want: 100, again: 5 * unit.Minute},
		"memory":                       {change: func(s *Signs) { s.Memory = true }, want: 0, reasons: "memory-pressure", again: 5 * unit.Minute},
		"disk":                         {change: func(s *Signs) { s.Disk = true }, want: 50, reasons: "disk-pressure", again: 5 * unit.Minute},
		"processes":                    {change: func(s *Signs) { s.PIDs = true }, want: 50, reasons: "pid-pressure", again: 5 * unit.Minute},
		"contradictory for a while":    {change: func(s *Signs) { s.Contradicts = unit.Some(int64(9 * unit.Minute)) }, want: 100, again: 5 * unit.Minute},
		"contradictory for long":       {change: func(s *Signs) { s.Contradicts = unit.Some(int64(10 * unit.Minute)) }, want: 50, reasons: "contradictory-report", again: 5 * unit.Minute},
		"evictions that are tolerated": {evictions: 3, want: 100, again: 5 * unit.Minute},
		"four evictions":               {evictions: 4, want: 75, reasons: "evictions", again: 5 * unit.Minute},
		"five evictions":               {evictions: 5, want: 50, reasons: "evictions", again: 5 * unit.Minute},
		"six evictions":                {evictions: 6, want: 50, reasons: "evictions", again: 5 * unit.Minute},
		"a thousand evictions":         {evictions: 1000, want: 25, reasons: "evictions", again: 5 * unit.Minute},
		"the least of all": {age: 6 * unit.Minute, evictions: 7, change: func(s *Signs) { s.Disk, s.PIDs = true, true }, want: 25,
			reasons: "stale-report disk-pressure pid-pressure evictions", again: 140 * unit.Second},
	} {
		s := health()
		in := Signs{Now: now, Report: &Report{At: now - tc.age, Evictions: tc.evictions}}
		if tc.change != nil {
			tc.change(&in)
		}
		got, again := s.Weigh(Sound(), in)
		if got.Weight != tc.want || strings.Join(got.Reasons, " ") != tc.reasons || again != tc.again || (got.Since != 0) != (tc.want < 100) {
			t.Errorf("%s: %+v, again after %s; want %d%%, %s, again after %s", name, got, age(again), tc.want, tc.reasons, age(tc.again))
		}
	}
}

// TestWeighOverTime walks through the documented example, and what else happens to a node: it gets worse at once and better by
// quarters, and the reason stands until it is sound.
func TestWeighOverTime(t *testing.T) {
	t.Parallel()
	type step struct {
		minute         unit.Micros
		memory, disk   bool
		weight         unit.Percent
		reasons        string
		since, waiting unit.Micros // minutes
	}
	for name, steps := range map[string][]step{
		"the example": {
			{minute: 1, weight: 100}, {minute: 2, memory: true, weight: 0, reasons: "memory-pressure", since: 2},
			{minute: 6, memory: true, weight: 0, reasons: "memory-pressure", since: 2}, {minute: 9, weight: 25, reasons: "memory-pressure", since: 9, waiting: 5},
			{minute: 13, weight: 25, reasons: "memory-pressure", since: 9, waiting: 1}, {minute: 14, weight: 50, reasons: "memory-pressure", since: 14, waiting: 5},
			{minute: 19, weight: 75, reasons: "memory-pressure", since: 19, waiting: 5}, {minute: 24, weight: 100},
		},
		"again while it recovers": {
			{minute: 2, memory: true, weight: 0, reasons: "memory-pressure", since: 2}, {minute: 9, weight: 25, reasons: "memory-pressure", since: 9, waiting: 5},
			{minute: 10, memory: true, weight: 0, reasons: "memory-pressure", since: 10}, {minute: 11, weight: 0, reasons: "memory-pressure", since: 10, waiting: 4},
			{minute: 15, weight: 25, reasons: "memory-pressure", since: 15, waiting: 5},
		},
		"to a lesser evil": {
			{minute: 2, memory: true, weight: 0, reasons: "memory-pressure", since: 2},
			{minute: 7, disk: true, weight: 25, reasons: "disk-pressure", since: 7, waiting: 5}, {minute: 12, disk: true, weight: 50, reasons: "disk-pressure", since: 12},
			{minute: 60, disk: true, weight: 50, reasons: "disk-pressure", since: 12}, {minute: 61, weight: 75, reasons: "disk-pressure", since: 61, waiting: 5},
		},
		"nobody looked for an hour": {
			{minute: 2, memory: true, weight: 0, reasons: "memory-pressure", since: 2}, {minute: 62, weight: 25, reasons: "memory-pressure", since: 62, waiting: 5},
		},
	} {
		s := health()
		w := Sound()
		for _, at := range steps {
			now := at.minute * unit.Minute
			before := w
			var again unit.Micros
			w, again = s.Weigh(before, Signs{Now: now, Report: &Report{At: now + unit.Minute}, Memory: at.memory, Disk: at.disk})
			want := Weighing{Weight: at.weight, Since: at.since * unit.Minute}
			if at.reasons != "" {
				want.Reasons = strings.Fields(at.reasons)
			}
			if diff := cmp.Diff(want, w); diff != "" || again != at.waiting*unit.Minute {
				t.Errorf("%s, minute %d: again after %s, %s", name, at.minute, age(again), diff)
			}
			// Whoever looks twice at the same moment finds the same.
			if twice, _ := s.Weigh(w, Signs{Now: now, Report: &Report{At: now + unit.Minute}, Memory: at.memory, Disk: at.disk}); !cmp.Equal(twice, w) {
				t.Errorf("%s, minute %d: looked at twice %+v, then %+v", name, at.minute, w, twice)
			}
		}
	}
}

// TestWeighNeverSticks: from whatever somebody has written, a sound node is whole again after four steps.
func TestWeighNeverSticks(t *testing.T) {
	t.Parallel()
	s := health()
	for _, since := range []unit.Micros{0, 50 * unit.Minute, 1 << 60} {
		w := Weighing{Weight: 0, Reasons: []string{protocol.UnsoundDisk}, Since: since}
		now, looks := 50*unit.Minute, 0
		for ; w.Weight < Whole && looks < 10; looks++ {
			var again unit.Micros
			if w, again = s.Weigh(w, Signs{Now: now, Report: &Report{At: now}}); w.Weight < Whole && (again <= 0 || again > s.Recovery) {
				t.Fatalf("since %d: %+v, again after %s", since, w, age(again))
			}
			now += again
		}
		if w.Weight != Whole || now > 50*unit.Minute+4*s.Recovery+4*s.Stale {
			t.Errorf("since %d: %+v after %d looks, at %s", since, w, looks, age(now))
		}
	}
}

func TestContradiction(t *testing.T) {
	t.Parallel()
	node := Node{Capacity: Amounts{CPU: 100_000, Memory: 100 << 30}}
	report := func(node, parts Amounts) *Report {
		third := Amounts{CPU: parts.CPU / 3, Memory: parts.Memory / 3}
		rest := parts.Minus(third).Minus(third)
		return &Report{Node: node, NodeOK: true, Pods: []Usage{{Used: third}}, Hosts: []Host{{Used: third}}, System: rest}
	}
	of := func(cpu unit.MilliCPU, gib unit.Bytes) Amounts { return Amounts{CPU: cpu * 1000, Memory: gib << 30} }
	silent := report(of(0, 0), of(90, 90))
	silent.NodeOK = false
	for name, tc := range map[string]struct {
		node   Node
		report *Report
		want   string
	}{
		"no report":               {node, nil, ""},
		"it does not say":         {node, silent, ""},
		"it fits":                 {node, report(of(50, 50), of(50, 50)), ""},
		"within the margin":       {node, report(of(50, 50), of(70, 70)), ""},
		"parts above the whole":   {node, report(of(50, 50), of(71, 50)), "pods, host applications and system report a use of 71 CPUs, the node one of 50 CPUs"},
		"the same of memory":      {node, report(of(50, 50), of(50, 71)), "pods, host applications and system report a use of 71 GiB, the node one of 50 GiB"},
		"full":                    {node, report(of(105, 105), of(105, 105)), ""},
		"more than there is":      {node, report(of(106, 50), of(50, 50)), "the node reports a use of 106 CPUs and has 100 CPUs"},
		"more memory than it has": {node, report(of(50, 106), of(50, 50)), "the node reports a use of 106 GiB and has 100 GiB"},
		"a node without capacity": {Node{}, report(of(50, 50), of(80, 80)), ""},
	} {
		if got := Contradiction(&tc.node, tc.report, 20); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
