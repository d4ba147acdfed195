// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"errors"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/plan"
)

// A spec is in force when the kernel has been read, and said not to be after the time that it may take. Once it was, what is written over it
// later is not this condition's.
func TestTakeover(t *testing.T) {
	t.Parallel()
	const elsewhere = "/etc/strategy.yaml"
	k := takeover{proven: 30 * time.Second}
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	object := func(generation int64) *slo.Strategy {
		o := &slo.Strategy{}
		o.UID, o.Generation = "u", generation
		return o
	}
	for i, step := range []struct {
		after      time.Duration
		generation int64
		source     string
		view       uint64
		follows    bool
		missing    string
		asked      uint64 // the View that the kernel is held against, 0 where it is not read
		want       string // of problem; pending and told stand for themselves
		pending    bool
		told       bool
	}{
		{0, 1, "handoff", 3, false, "", 0, "", false, false},
		{2 * time.Second, 1, "handoff", 4, true, "", 4, "", false, true},
		{2 * time.Second, 1, "handoff", 5, true, "drift", 0, "", false, true},
		{time.Hour, 2, "handoff", 6, false, "", 0, "", false, false},
		{9 * time.Second, 2, "handoff", 6, false, "", 0, "", false, false},
		{time.Second, 2, "handoff", 6, false, "", 0, "the spec has not reached", true, true},
		{time.Minute, 2, "handoff", 8, true, "x", 8, "", false, false},
		{29 * time.Second, 2, "handoff", 40, true, "x", 8, "", false, false},
		{time.Second, 2, "handoff", 41, true, "x", 8, "x", false, true},
		{2 * time.Second, 2, "handoff", 42, true, "y", 0, "x", false, true}, // not read at each look
		{8 * time.Second, 2, "handoff", 43, true, "y", 8, "y", false, true},
		{10 * time.Second, 2, "handoff", 44, true, "", 8, "", false, true},
		{2 * time.Second, 2, elsewhere, 44, true, "", 0, "", false, false},
		{20 * time.Second, 2, elsewhere, 44, true, "", 0, "the node's strategy comes from elsewhere", true, true},
		{2 * time.Second, 2, "handoff", 50, true, "", 50, "", false, true}, // it is read again
	} {
		at = at.Add(step.after)
		var asked uint64
		problem, pending, told := k.look(at, object(step.generation), step.source, step.view, step.follows, func(view uint64) string {
			asked = view
			return step.missing
		})
		if told != step.told || pending != step.pending || len(problem) < len(step.want) || problem[:len(step.want)] != step.want || (problem == "") != (step.want == "") {
			t.Errorf("step %d: %q, pending %v, told %v", i, problem, pending, told)
		}
		if asked != step.asked {
			t.Errorf("step %d: the kernel was held against View %d, want %d", i, asked, step.asked)
		}
	}
}

// The condition names values in an order of its own, and not all of a full node.
func TestUnlike(t *testing.T) {
	t.Parallel()
	bad := func(name string) apply.Mismatch {
		return apply.Mismatch{Setting: plan.Setting{Target: plan.Target{Level: plan.LevelContainer, Name: name}, Knob: plan.CPUShares, Value: plan.Int(2)}, Got: plan.Int(3)}
	}
	broken := bad("a")
	broken.Err = errors.New("EIO")
	for want, list := range map[string][]apply.Mismatch{
		"": nil,
		"1 value is not in the kernel: cpu.shares of container d: want 2, got \"3\"": {bad("d")},
		"4 values are not in the kernel: cpu.shares of container a: want 2, got error: EIO; cpu.shares of container b: want 2, got \"3\"; " +
			"cpu.shares of container c: want 2, got \"3\"; and 1 more": {bad("d"), bad("c"), bad("b"), broken},
	} {
		if got := unlike(list); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
