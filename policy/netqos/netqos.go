// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package netqos decides how the bandwidth of the node's uplink is divided: a guaranteed and a largest share for each class of
// pods (resourceQOSStrategy.*.networkQOS), in both directions, and the limits of single pods (annotation
// koordinator.sh/networkQOS).
//
//	total     annotation network-bandwidth of the node, else systemStrategy.totalNetworkBandwidth, else the link's speed;
//	          never more than the link's speed
//	request   percent of total or bit/s; the requests of all classes together leave the system 1 % of total
//	limit     percent of total or bit/s
//	system    total − requests, limit total
//	order     system, LSR, LS, BE: who gets first what nobody is guaranteed
//
// A BE pod that disturbs others by what it sends is held to what interference detection says, where a class is enabled.
//
// A class that is not enabled has no share of its own: its pods are the system's. A direction is left alone while no class asks
// for a request or a limit in it and no pod has a limit. What a link had before is kept from the first step that changes it, or
// from a later one that finds something of somebody else's, and given back when nobody asks any more.
//
// Example: 10 Gbit/s, LS 40..100 %, BE 10 %..3G: system 5..10 Gbit/s, LS 4..10 Gbit/s, BE 1..3 Gbit/s.
//
// Input is an Input with the link as it is, and the State of the step before; output a plan with reasons, the pods of each
// direction, and what is degraded. It imports model, api, policy/figure and the standard library only; never os, net, log, fmt or
// time.
package netqos

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Link is the uplink as it is, and links that are still ours.
type Link struct {
	// Name of the uplink, the link of the default route; empty when there is none, NoLink says why.
	Name, NoLink string
	// Speed is 0 when the link does not tell.
	Speed unit.BitRate
	// Now is what each "link/direction" has, for the uplink and all that State.Held names. Why says of one that is missing why it
	// cannot be shaped.
	Now, Why map[string]string
	// Tunnels are devices whose traffic has the node's address on the uplink: "flannel.1 (vxlan)".
	Tunnels []string
	// Notes are what the kernel could not give.
	Notes []string
}

// Pod is one pod that runs.
type Pod struct {
	UID, Name string
	Class     protocol.QoS
	Addresses []netip.Addr
	// HostNetwork: it has the node's address.
	HostNetwork bool
	// Limits are the annotation's, nil without one.
	Limits *protocol.NetworkQOS
	// Cap is what interference detection leaves it to send, 0 for no cap.
	Cap unit.BitRate
}

// Input is what one step looks at.
type Input struct {
	// Off says why nothing may be set; what was ours goes back. Empty: it may.
	Off      string
	Strategy *strategy.Spec
	// Bandwidth is the node's annotation, 0 without one.
	Bandwidth unit.BitRate
	Link      *Link
	Pods      []Pod
	// Problems were found while the input was put together.
	Problems []string
}

// State is what a step leaves for the next; it survives a restart of the agent as JSON.
type State struct {
	Held []Held `json:"held,omitempty"`
}

// Held is a direction of a link that is ours.
type Held struct {
	Key string `json:"key"`
	// Original is what stood there before, or what somebody else has set in the place of ours since.
	Original string `json:"original"`
}

// Output of a step.
type Output struct {
	// Plan has what differs from what is in force; nil means that nothing is to be written.
	Plan plan.Plan
	// Directions are those that are to be ours, with their pods.
	Directions []Direction
	// Asked: somebody wants something. Limited are sentences about what cannot be had, Problems about fields that cannot be used.
	Asked             bool
	Limited, Problems []string
	// Missing says why nothing can be had at all.
	Missing string
	Reason  string
}

// Direction is one direction of a link that is to be ours.
type Direction struct {
	Key   string
	Shape shape.Shape
	Pods  []shape.Pod
}

// Asked reports whether a strategy asks for anything: a class is enabled. Without one, limits of pods do not act either.
func Asked(s *strategy.Spec) bool { return len(enabled(s)) > 0 }

// Step decides once.
func Step(s State, in Input) (State, Output) {
	w := &work{in: &in, s: &s}
	w.out.Problems = slices.Clone(in.Problems)
	w.want()
	for _, h := range s.Held {
		if slices.ContainsFunc(w.next.Held, func(n Held) bool { return n.Key == h.Key }) {
			continue
		}
		now, known := in.Link.Now[h.Key]
		switch {
		case !known:
			w.next.Held = append(w.next.Held, h) // not readable now
		case shape.Ours(now):
			w.next.Held = append(w.next.Held, h) // until it is seen to be back
			w.set(h.Key, h.Original, "nobody asks for it any more: back to what it was")
		}
	}
	slices.SortFunc(w.next.Held, func(a, b Held) int { return strings.Compare(a.Key, b.Key) })
	return w.next, w.out
}

// work is one step in progress.
type work struct {
	in   *Input
	s    *State
	next State
	out  Output
}

func (w *work) set(key, value, reason string) {
	w.out.Plan = append(w.out.Plan, plan.Setting{
		Target: plan.Target{Level: plan.LevelNode}, Knob: plan.NetShape, Key: key, Value: plan.Text(value),
		Owner: protocol.FeatureNetwork, Reason: reason,
	})
}

// want walks both directions.
func (w *work) want() {
	classes := enabled(w.in.Strategy)
	if w.in.Off != "" || len(classes) == 0 {
		w.out.Reason = w.in.Off
		return
	}
	w.out.Asked = true
	l := w.in.Link
	if l.Name == "" {
		w.out.Missing = l.NoLink
		return
	}
	total, ok := w.total()
	if !ok {
		return
	}
	w.out.Limited = append(w.out.Limited, l.Notes...)
	pods := w.pods(classes)
	var parts []string
	for d := range shape.NumDirections {
		if part := w.direction(d, total, classes, pods); part != "" {
			parts = append(parts, part)
		}
	}
	w.out.Reason = strings.Join(parts, "; ")
	if len(parts) == 0 && len(w.out.Limited) == 0 {
		w.out.Reason = "no class asks for a request or a limit, and no pod has one"
	}
	if len(w.out.Directions) > 0 && len(l.Tunnels) > 0 {
		w.out.Limited = append(w.out.Limited, "what goes by "+strings.Join(l.Tunnels, ", ")+" has the node's address on "+l.Name+
			" and counts as the system's")
	}
}

// direction wants one direction and says what, or nothing.
func (w *work) direction(d shape.Direction, total unit.BitRate, classes []class, pods []podOf) string {
	sh, asked := w.shape(d, total, classes)
	limited := w.limits(d, pods)
	if !asked && limited == 0 {
		return ""
	}
	key := shape.Key(w.in.Link.Name, d)
	now, ok := w.in.Link.Now[key]
	if why := w.in.Link.Why[key]; !ok || why != "" {
		if why == "" {
			why = "not looked at yet"
		}
		w.out.Limited = append(w.out.Limited, "no "+d.String()+": "+why)
		if i := w.held(key); i >= 0 {
			w.next.Held = append(w.next.Held, w.s.Held[i])
		}
		return ""
	}
	h := Held{Key: key, Original: now}
	switch i := w.held(key); {
	case i >= 0 && (shape.Ours(now) || now == shape.Gone):
		h = w.s.Held[i]
	case shape.Ours(now):
		h.Original = shape.Before(d) // what an earlier life found is lost, but for the ledger
	}
	w.next.Held = append(w.next.Held, h)
	if value := sh.String(); now != value {
		w.set(key, value, "networkQOS of "+namesOf(sh)+" and "+d.String()+" limits of pods")
	}
	w.out.Directions = append(w.out.Directions, Direction{Key: key, Shape: sh, Pods: inDirection(d, sh, pods)})
	return key + ": " + describe(sh, limited)
}

func (w *work) held(key string) int {
	return slices.IndexFunc(w.s.Held, func(h Held) bool { return h.Key == key })
}
