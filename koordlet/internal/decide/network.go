// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/shape"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/interference"
	"github.com/koord-rt/koord-rt/policy/netqos"
)

// Network reports whether a step would look at the uplink, which is for those who ask for shares of it.
func Network(s *State, v *node.View) bool {
	return len(s.Network.Held) > 0 || netqos.Asked(v.Strategy) && networkOff(v) == ""
}

// network is the step of the uplink's loop. Without a new look at the link the last outcome stands.
func network(f *Facts, s *State, a *accounts, out *Outcome) {
	if f.Link == nil {
		if !Network(s, f.View) {
			s.tick.Network = netqos.Output{}
		}
		return
	}
	held := s.Network.Held
	s.Network, s.tick.Network = netqos.Step(s.Network, networkInput(f, a, senders(s.Interference.Suspects)))
	out.Node = append(slices.Clip(out.Node), s.tick.Network.Plan...)
	out.Owns = out.Owns || !slices.Equal(held, s.Network.Held)
}

// NoNetwork says why the uplink is not divided, where nobody asks for it.
func NoNetwork(v *node.View) string {
	if why := networkOff(v); why != "" {
		return why
	}
	return "no class of networkQOS is enabled"
}

// networkOff says why nothing of a link may be set here; empty when it may.
func networkOff(v *node.View) string {
	p := (*string)(nil)
	if q := v.Strategy; q != nil && q.ResourceQOSStrategy != nil && q.ResourceQOSStrategy.Policies != nil {
		p = q.ResourceQOSStrategy.Policies.NETQOSPolicy
	}
	switch {
	case v.Mode(protocol.FeatureNetwork) != node.Active:
		return "the feature " + protocol.FeatureNetwork.String() + " is not active on this node"
	case v.Ceded.Has(plan.NetShape):
		return plan.NetShape.String() + " is ceded to another plugin"
	case p != nil && *p == strategy.NetQOSPolicyTerway:
		return "policies.netQOSPolicy is " + strategy.NetQOSPolicyTerway + ", which is another program's work"
	}
	return ""
}

// sends reports whether what a node sends is shaped, so that a cap on a pod of it would be put in force. Until the uplink has been looked at
// after a restart, what was shaped before counts.
func (s *State) sends() bool {
	egress := func(key string) bool { return strings.HasSuffix(key, "/"+shape.Egress.String()) }
	if !s.tick.Network.Asked {
		return slices.ContainsFunc(s.Network.Held, func(h netqos.Held) bool { return egress(h.Key) })
	}
	return slices.ContainsFunc(s.tick.Network.Directions, func(d netqos.Direction) bool { return egress(d.Key) })
}

// passed takes from what best-effort pods send what does not come out at the uplink. Who does not slow down when packets are lost (UDP) sends
// more than its class or its own limit lets through: that is lost here, others do not meet it, and half of it would be no cut.
//
//	out = min(sent, own limit) × min(1, ceil of the class / Σ min(sent, own limit) of its pods)
//
// Until the uplink has been looked at after a restart nothing is known of what comes out.
func (s *State) passed(pods []interference.Pod) {
	egress := slices.IndexFunc(s.tick.Network.Directions, func(d netqos.Direction) bool { return strings.HasSuffix(d.Key, "/"+shape.Egress.String()) })
	if egress < 0 {
		for i := range pods {
			if pods[i].QoS == protocol.QoSBE {
				pods[i].Used[interference.Network] = unit.Measured[interference.Level]{}
			}
		}
		return
	}
	d := &s.tick.Network.Directions[egress]
	class := func(p *interference.Pod) string {
		if at := slices.IndexFunc(d.Pods, func(q shape.Pod) bool { return q.Name == p.Name }); at >= 0 {
			if limit := d.Pods[at].Limit; limit > 0 {
				p.Used[interference.Network].V = min(p.Used[interference.Network].V, interference.Level(limit)/8)
			}
			return d.Pods[at].Class
		}
		return shape.System
	}
	sums, of := map[string]interference.Level{}, make([]string, len(pods))
	for i := range pods {
		p := &pods[i]
		if p.QoS != protocol.QoSBE || !p.Used[interference.Network].OK {
			continue
		}
		of[i] = class(p)
		sums[of[i]] += p.Used[interference.Network].V
	}
	for i := range pods {
		c := d.Shape.Find(of[i])
		if of[i] == "" || c == nil {
			continue
		}
		if most := interference.Level(c.Ceil) / 8; sums[of[i]] > most {
			pods[i].Used[interference.Network].V *= most / sums[of[i]]
		}
	}
}

// senders are the suspects that send less, by the pod's UID.
func senders(suspects []interference.Suspicion) map[string]unit.BitRate {
	var out map[string]unit.BitRate
	for _, s := range suspects {
		if s.Resource == interference.Network {
			if out == nil {
				out = map[string]unit.BitRate{}
			}
			out[s.Pod] = unit.BitRate(8 * s.Limit)
		}
	}
	return out
}

// networkInput is what the uplink's loop looks at. A pod that runs and that Kubernetes has not told of has no known address.
func networkInput(f *Facts, a *accounts, caps map[string]unit.BitRate) netqos.Input {
	in := netqos.Input{Off: networkOff(f.View), Strategy: f.View.Strategy, Link: f.Link}
	if f.Node != nil {
		if text := f.Node.Annotations[protocol.AnnotationNetworkBandwidth]; text != "" {
			n, err := strategy.ParseQuantity(text)
			if err != nil {
				in.Problems = append(in.Problems, "annotation "+protocol.AnnotationNetworkBandwidth+" of the node: "+err.Error())
			}
			in.Bandwidth = unit.BitRate(n)
		}
	}
	for i := range a.pods {
		u := &a.pods[i]
		m := u.member.Pod
		if m.Ask.OptOut.Has(protocol.FeatureNetwork) || u.spec != nil && u.spec.Finished() {
			continue
		}
		p := netqos.Pod{UID: m.UID, Name: m.FullName(), Class: u.class, Limits: m.Ask.Network, Cap: caps[m.UID]}
		if u.spec != nil {
			p.HostNetwork = u.spec.HostNetwork
			for _, ip := range u.spec.IPs {
				if addr, err := netip.ParseAddr(ip); err == nil {
					p.Addresses = append(p.Addresses, addr)
				}
			}
		}
		in.Pods = append(in.Pods, p)
	}
	slices.SortFunc(in.Pods, func(x, y netqos.Pod) int { return strings.Compare(x.UID, y.UID) })
	return in
}

// networkState is the outcome for the handoff.
func networkState(o *netqos.Output) node.Network {
	if !o.Asked {
		return node.Network{}
	}
	limited := strings.Join(append(slices.Clone(o.Limited), o.Problems...), "; ")
	switch {
	case o.Missing != "":
		return node.Network{Missing: o.Missing}
	case len(o.Directions) == 0 && len(o.Limited) > 0:
		return node.Network{Missing: limited}
	}
	return node.Network{Limited: limited}
}
