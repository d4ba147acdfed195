// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package oomscore_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/oomscore"
)

const (
	gib = unit.Bytes(1 << 30)
	mib = unit.Bytes(1 << 20)
)

// node is one of 64 GiB with a container that requests 1 GiB, has a limit of 4, and uses so much.
func node(used unit.Bytes) oomscore.Input {
	return oomscore.Input{
		Calm: true, Capacity: 64 * gib,
		Containers: []oomscore.Container{{ID: "c", Pod: "uid", Base: oomscore.Of(gib, 64*gib), Used: unit.Got(used), Max: 4 * gib}},
	}
}

// run steps once a second, n times, and returns the score after the last, 0 for its own.
func run(s oomscore.State, in oomscore.Input, now *unit.Micros, n int) (oomscore.State, int64) {
	var out oomscore.Output
	for range n {
		*now += unit.Second
		in.Now = *now
		s, out = oomscore.Step(s, in)
	}
	if len(out.Scores) == 0 {
		return s, 0
	}
	return s, out.Scores[0].Value
}

// The kubelet's figures: its own test cases have 3 and 999 at the ends.
func TestTheKubeletsFormula(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		request, capacity unit.Bytes
		want              int64
	}{
		{gib, 64 * gib, 985}, {4 * gib, 64 * gib, 938}, {0, 64 * gib, 999}, {1, 64 * gib, 999}, {64 * gib, 64 * gib, 3}, {100 * gib, 64 * gib, 3}, {32 * gib, 64 * gib, 500},
	} {
		if got := oomscore.Of(c.request, c.capacity); got != c.want {
			t.Errorf("%d of %d: %d, want %d", c.request, c.capacity, got, c.want)
		}
	}
}

// A container near its limit has, after ten seconds, what it would have if it had requested that limit; while it keeps between 80 % and
// 90 % that stays, also where the node is calm no longer, and it goes a minute after it has kept below.
func TestNearAndBack(t *testing.T) {
	t.Parallel()
	var s oomscore.State
	var now unit.Micros
	for _, step := range []struct {
		what    string
		seconds int
		used    unit.Bytes
		calm    bool
		want    int64
	}{
		{"well below", 100, 2 * gib, true, 0},
		{"near, not for long", 10, 3700 * mib, true, 0},
		{"below in between", 1, 3 * gib, true, 0},
		{"near anew", 10, 3700 * mib, true, 0},
		{"near for ten seconds", 1, 3700 * mib, true, 938},
		{"nearer", 30, 4000 * mib, true, 938},
		{"the node is full", 300, 4000 * mib, false, 938},
		{"between", 300, 3400 * mib, true, 938},
		{"below", 60, 3 * gib, true, 938},
		{"not below for once", 1, 3400 * mib, true, 938},
		{"below again", 60, 3 * gib, true, 938},
		{"for a minute", 1, 3 * gib, true, 0},
		{"near on a full node", 300, 4000 * mib, false, 0},
	} {
		in := node(step.used)
		in.Calm = step.calm
		var got int64
		if s, got = run(s, in, &now, step.seconds); got != step.want {
			t.Errorf("%s: %d, want %d", step.what, got, step.want)
		}
	}
	if len(s.Containers) != 0 {
		t.Errorf("left: %+v", s)
	}
}

// Who has no room within its class, or no limit to come near to, keeps its own; what is not measured changes nothing; who has gone is
// forgotten.
func TestWhoHasNone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*oomscore.Container){
		"Guaranteed":        func(c *oomscore.Container) { c.Base = -997 },
		"BestEffort":        func(c *oomscore.Container) { c.Base = 1000 },
		"an ordinary one's": func(c *oomscore.Container) { c.Base = 0 },
		"no limit":          func(c *oomscore.Container) { c.Max = 0 },
		"requests it all":   func(c *oomscore.Container) { c.Base = oomscore.Of(4*gib, 64*gib) },
		"not measured":      func(c *oomscore.Container) { c.Used = unit.Measured[unit.Bytes]{} },
	} {
		in := node(4 * gib)
		change(&in.Containers[0])
		var now unit.Micros
		if s, got := run(oomscore.State{}, in, &now, 60); got != 0 {
			t.Errorf("%s: %d, %+v", name, got, s)
		}
	}
	var now unit.Micros
	s, got := run(oomscore.State{}, node(4*gib), &now, 60)
	if got == 0 {
		t.Fatal("no score to begin with")
	}
	in := node(0)
	in.Containers[0].Used = unit.Measured[unit.Bytes]{}
	if _, still := run(s, in, &now, 300); still != got {
		t.Errorf("not measured: %d, want %d", still, got)
	}
	in = node(4700 * mib)
	in.Containers[0].Max = 5 * gib
	for i, want := range []int64{0, 0, oomscore.Of(5*gib, 64*gib)} { // the old one is given back before there is another
		var score int64
		if s, score = run(s, in, &now, []int{1, 10, 1}[i]); score != want {
			t.Errorf("another limit: %d, want %d, %+v", score, want, s)
		}
	}
	in = node(4 * gib)
	in.Least = unit.Some(950)
	if _, now := run(oomscore.State{}, in, &now, 60); now != 950 {
		t.Errorf("the node allows 950: %d", now)
	}
	in.Least = unit.Some(990)
	if _, now := run(oomscore.State{}, in, &now, 60); now != 0 {
		t.Errorf("the node allows 990: %d", now)
	}
	in = node(4 * gib)
	in.Containers[0].Base = 900 // somebody has given it a lower one meanwhile
	if _, now := run(s, in, &now, 1); now != 0 {
		t.Errorf("beside a lower one of its own: %d", now)
	}
	if s, _ := run(s, oomscore.Input{Calm: true, Capacity: 64 * gib}, &now, 1); len(s.Containers) != 0 {
		t.Errorf("gone: %+v", s)
	}
}

// Of several each has its own, in the order of their ids; a restart of the agent changes nothing.
func TestSeveralOverARestart(t *testing.T) {
	t.Parallel()
	in := node(4 * gib)
	one := in.Containers[0]
	for _, id := range []string{"b", "a"} {
		one.ID = id
		in.Containers = append(in.Containers, one)
	}
	in.Containers[2].Max = 5 * gib // of which it is not near
	var s oomscore.State
	var out oomscore.Output
	for second := range 30 {
		in.Now = unit.Micros(second+1) * unit.Second
		kept, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		s = oomscore.State{}
		if err := json.Unmarshal(kept, &s); err != nil {
			t.Fatal(err)
		}
		s, out = oomscore.Step(s, in)
	}
	var ids []string
	for _, score := range out.Scores {
		ids = append(ids, score.Container)
		if score.Value != 938 || score.Base != 985 || !strings.Contains(score.Reason, "4 GiB of 4 GiB (100%)") {
			t.Errorf("%+v", score)
		}
	}
	if d := cmp.Diff([]string{"b", "c"}, ids); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
