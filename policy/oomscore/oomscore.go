// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package oomscore decides whose oom_score_adj falls while it nears its own memory limit on a node that has memory to spare (tuning).
//
// The kubelet gives a container of a Burstable pod 1000 − 1000 × request / capacity, within 3..999, so that a node that runs out ends first
// who is furthest above its request (mm/oom_kill.c: resident memory + oom_score_adj × capacity / 1000). Whoever uses nearly all that its
// limit allows is judged by the limit instead, while the room lasts:
//
//	near   what cannot be reclaimed is 90 % of memory.max or more for 10 s, on a calm node
//	score  1000 − 1000 × memory.max / capacity, at least 3, and the node's own least
//	back   when it has kept below 80 % of memory.max for a minute, or may not be tuned any more; when the limit is another one
//
// A container has one such score as long as its limit stands, whenever that is decided: two in a row could not be told from one that a
// process has set itself.
//
// That is the class's own measure: nobody is better off than a container that keeps within its request, and Guaranteed pods (-997) and
// BestEffort ones (1000) have no room between them, nor have koord-rt's best-effort pods, which give way first. It stays when the node is
// calm no longer, since then it counts. A request for a score (annotation) stands before it.
//
// Example: a container that requests 1 GiB of a node's 64 has 985 (984.4); near its limit of 4 GiB it has 938 (937.5).
//
// Input is an Input and the State of the step before, output the scores with their reasons; who is not listed has its own. It imports
// model, policy/figure and the standard library only; never os, net, log, fmt or time.
package oomscore

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// Figures of the loop.
const (
	nearPercent, backPercent = unit.Percent(90), unit.Percent(80)
	nearFor                  = 10 * unit.Second
	backAfter                = unit.Minute
	// The kubelet's bounds of a Burstable container (pkg/kubelet/qos/policy.go).
	least, most = 3, 999
)

// Input is what one step looks at.
type Input struct {
	Now unit.Micros
	// Calm: the node has memory to spare, and that is measured.
	Calm bool
	// Capacity is the node's memory, as the kubelet counts it.
	Capacity unit.Bytes
	// Least is the lowest score that the node allows, not set for none.
	Least unit.Opt
	// Containers are those that may be tuned, each once.
	Containers []Container
}

// Container is one running container.
type Container struct {
	ID, Pod string // Pod is the UID
	// Base is the oom_score_adj that it has without this loop.
	Base int64
	// Used is what it has that cannot be reclaimed; Max is memory.max, 0 for none.
	Used unit.Measured[unit.Bytes]
	Max  unit.Bytes
}

// State is what a step leaves for the next, sorted by container id; the zero value is a fresh start.
type State struct {
	Containers []ContainerState `json:"containers,omitempty"`
}

// ContainerState is one container that is near its limit, or was a short while ago. Instants are 0 when they do not apply.
type ContainerState struct {
	ID string `json:"id"`
	// NearAt is since when it has been near; LowAt since when it has kept below, while it has a score.
	NearAt unit.Micros `json:"nearAt,omitempty"`
	LowAt  unit.Micros `json:"lowAt,omitempty"`
	// Score is what it has of this loop, 0 for nothing, and Reason why.
	Score  int64  `json:"score,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Score is one container's oom_score_adj for the time being.
type Score struct {
	Container, Pod string
	// Value is below Base, which it has without this loop.
	Value, Base int64
	Reason      string
}

// Output of a step: the scores by container id, and whether they are others than those of the step before.
type Output struct {
	Scores  []Score
	Changed bool
}

// Step decides once.
func Step(s State, in Input) (State, Output) {
	var next State
	var out Output
	for i := range in.Containers {
		c := &in.Containers[i]
		one, had := ContainerState{ID: c.ID}, int64(0)
		if at, found := slices.BinarySearchFunc(s.Containers, c.ID, byID); found {
			one = s.Containers[at]
			had = one.Score
		}
		one = c.step(one, &in)
		out.Changed = out.Changed || one.Score != had
		if one == (ContainerState{ID: c.ID}) {
			continue
		}
		next.Containers = append(next.Containers, one)
		if one.Score > 0 {
			out.Scores = append(out.Scores, Score{c.ID, c.Pod, one.Score, c.Base, one.Reason})
		}
	}
	slices.SortFunc(next.Containers, func(a, b ContainerState) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(out.Scores, func(a, b Score) int { return cmp.Compare(a.Container, b.Container) })
	return next, out
}

func byID(c ContainerState, id string) int { return cmp.Compare(c.ID, id) }

// step is one container's; without a figure all stays as it is.
func (c *Container) step(s ContainerState, in *Input) ContainerState {
	if c.Base < least || c.Base > most || c.Max <= 0 || in.Capacity <= 0 {
		return ContainerState{ID: c.ID}
	}
	score := Of(c.Max, in.Capacity)
	if in.Least.Set {
		score = max(score, in.Least.V)
	}
	switch {
	case score >= c.Base || s.Score != 0 && s.Score != score:
		return ContainerState{ID: c.ID}
	case !c.Used.OK:
		return s
	}
	near, low := c.Used.V >= nearPercent.Of(c.Max), c.Used.V < backPercent.Of(c.Max)
	if s.Score > 0 {
		switch {
		case !low:
			s.LowAt = 0
		case s.LowAt == 0:
			s.LowAt = in.Now
		case in.Now-s.LowAt >= backAfter:
			return ContainerState{ID: c.ID}
		}
		return s
	}
	switch {
	case !near || !in.Calm:
		return ContainerState{ID: c.ID}
	case s.NearAt == 0:
		s.NearAt = in.Now
	case in.Now-s.NearAt >= nearFor:
		s = ContainerState{ID: c.ID, Score: score, Reason: c.why()}
	}
	return s
}

// Of is the oom_score_adj that the kubelet gives a container of a Burstable pod which requests so much of a node's memory.
func Of(request, capacity unit.Bytes) int64 {
	return min(max(1000-int64(float64(request)*1000/float64(capacity)), least), most)
}

func (c *Container) why() string {
	return "tuned: near its limit on a calm node, with " + figure.BytesOf(c.Used.V, c.Max) + "; what it would have if it had requested its limit"
}
