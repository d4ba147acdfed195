// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"encoding/json"
	"testing"

	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Of a container with a limit that has just begun it is not known what its limit does to it. Who is read late, has ended or can never be read is no
// beginner for ever: its pod would never be listened to.
func TestBeginners(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limit  int64
		figure unit.Micros // how long before the first look it was read last; 0 for never
		again  unit.Micros // how long before the last look it was read; 0 for not
		after  unit.Micros // the last look
		first  bool
		last   bool
	}{
		"without a limit":       {after: unit.Second, first: true, last: true},
		"it has just begun":     {limit: 50000, again: unit.Second / 2, after: 2 * unit.Second, last: true},
		"not read for a moment": {limit: 50000, after: 4 * unit.Second},
		"never read":            {limit: 50000, after: 5 * unit.Second, last: true},
		"read late":             {limit: 50000, figure: 20 * unit.Second, after: unit.Second, first: true, last: true},
		"of another clock":      {limit: 50000, after: -60 * unit.Minute},
	} {
		w := window.New(window.Options{})
		m := &engine.Member{Pod: &workload.Pod{UID: "web"}, Containers: []*workload.Container{{ID: "c"}}}
		if tc.limit > 0 {
			m.Containers[0].Base.Quota = unit.Some(tc.limit)
		}
		read := func(at unit.Micros) {
			w.Append([]sample.Sample{{Subject: sample.OfContainer("c"), Metric: sample.CPUUsage, Value: 0.1, At: at}})
		}
		at := 120 * unit.Minute
		if tc.figure > 0 {
			read(at - tc.figure)
		}
		var s decide.State
		if known := s.OwnKnown(w, m, at); known != tc.first {
			t.Errorf("%s: first known %v", name, known)
		}
		kept, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		before := s
		if at += tc.after; tc.again > 0 {
			read(at - tc.again)
		}
		for range 2 { // the second as after a restart
			if known := s.OwnKnown(w, m, at); known != tc.last {
				t.Errorf("%s: later known %v", name, known)
			}
			if known := len(before.Beginners) == 0; known != tc.first {
				t.Errorf("%s: a former state was changed: %+v", name, before.Beginners)
			}
			s = decide.State{}
			if err := json.Unmarshal(kept, &s); err != nil {
				t.Fatal(err)
			}
		}
	}
	var s decide.State
	w := window.New(window.Options{})
	for i := range 1000 {
		m := &engine.Member{Pod: &workload.Pod{UID: "web"}, Containers: []*workload.Container{{ID: string(rune('a' + i)), Base: workload.Resources{Quota: unit.Some(1000)}}}}
		s.OwnKnown(w, m, unit.Second)
	}
	if len(s.Beginners) != 256 {
		t.Errorf("%d are remembered", len(s.Beginners))
	}
	m := &engine.Member{Pod: &workload.Pod{UID: "api", Base: workload.Resources{Quota: unit.Some(1000)}}}
	if s.OwnKnown(w, m, 11*unit.Minute); len(s.Beginners) != 1 {
		t.Errorf("%d are remembered ten minutes later", len(s.Beginners))
	}
}
