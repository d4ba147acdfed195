// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package netqos

import (
	"net/netip"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/figure"
)

// podOf is a pod with the class that its traffic belongs to.
type podOf struct {
	*Pod
	class string
}

// pods are those that can be told apart by their addresses and have something of their own. What cannot be told apart is said.
func (w *work) pods(classes []class) []podOf {
	var out []podOf
	owner := map[netip.Addr]*Pod{}
	hosts, unknown := 0, 0
	for i := range w.in.Pods {
		p := &w.in.Pods[i]
		c := classOf(p.Class, classes)
		if c == shape.System && p.Limits == nil && p.Cap <= 0 {
			continue
		}
		switch {
		case p.HostNetwork:
			hosts++
			continue
		case len(p.Addresses) == 0:
			unknown++
			continue
		}
		free := true
		for _, a := range p.Addresses {
			if o := owner[a]; o != nil {
				w.problem("pod "+p.Name, "has the address "+a.String()+" of pod "+o.Name+" and counts as that one")
				free = false
				break
			}
		}
		if !free {
			continue
		}
		for _, a := range p.Addresses {
			owner[a] = p
		}
		out = append(out, podOf{p, c})
	}
	if hosts > 0 {
		w.out.Limited = append(w.out.Limited, figure.Count(hosts, "pod")+" with the node's address (hostNetwork) cannot be told from the system")
	}
	if unknown > 0 {
		w.out.Limited = append(w.out.Limited, figure.Count(unknown, "pod")+" without a known address")
	}
	return out
}

// classOf is the class of a pod's traffic: LSE has LSR's, a class that is not enabled is the system's.
func classOf(q protocol.QoS, classes []class) string {
	name := shape.System
	switch q {
	case protocol.QoSLSE, protocol.QoSLSR:
		name = shape.LSR
	case protocol.QoSLS:
		name = shape.LS
	case protocol.QoSBE:
		name = shape.BE
	}
	for i := range classes {
		if classes[i].name == name {
			return name
		}
	}
	return shape.System
}

// limitOf is a pod's own limit in a direction, 0 without one: the annotation's, or its cap where that is less.
func limitOf(p *Pod, d shape.Direction) (limit unit.BitRate) {
	if p.Limits != nil {
		if limit = unit.BitRate(p.Limits.EgressLimit); d == shape.Ingress {
			limit = unit.BitRate(p.Limits.IngressLimit)
		}
	}
	if d == shape.Egress && p.Cap > 0 && p.Class == protocol.QoSBE && (limit <= 0 || p.Cap < limit) {
		return p.Cap
	}
	return limit
}

// limits counts the pods with a limit in a direction.
func (w *work) limits(d shape.Direction, pods []podOf) (n int) {
	for i := range pods {
		if limitOf(pods[i].Pod, d) > 0 {
			n++
		}
	}
	return n
}

// inDirection are the pods as one direction sees them. A limit that the class has anyway is none.
func inDirection(d shape.Direction, s shape.Shape, pods []podOf) []shape.Pod {
	var out []shape.Pod
	for i := range pods {
		p := &pods[i]
		limit := limitOf(p.Pod, d).Whole()
		if c := s.Find(p.class); c != nil && limit >= c.Ceil {
			limit = 0
		}
		if p.class == shape.System && limit == 0 {
			continue
		}
		out = append(out, shape.Pod{Name: p.Name, Class: p.class, Limit: limit, Addresses: p.Addresses})
	}
	return out
}
