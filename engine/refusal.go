// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
	containerpolicy "github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/draft"
	"github.com/koord-rt/koord-rt/policy/feature"
	"github.com/koord-rt/koord-rt/policy/llc"
	podpolicy "github.com/koord-rt/koord-rt/policy/pod"
)

// refusal is an error that is meant for the runtime: the pod or the node has chosen fail-closed (D8).
type refusal struct{ reasons []string }

// Error says what is missing and who asked for it.
func (r *refusal) Error() string {
	return "koord-rt: required guarantee is not in force: " + strings.Join(r.reasons, "; ")
}

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// refuse is the refusal for these reasons, nil for none.
func refuse(reasons []string) error {
	if len(reasons) == 0 {
		return nil
	}
	return &refusal{reasons: reasons}
}

// demanded are the features that must be in force for the pod: those that its annotation names, and those of the node's
// configuration that the pod is not left alone with.
func demanded(v *node.View, p *workload.Pod) protocol.FeatureSet {
	must := p.Ask.Required
	if !v.FailClosed.Empty() {
		active, _ := draft.Features(v, p)
		must |= v.FailClosed & active
	}
	return must
}

// unavailable refuses a pod that demands a feature which this node does not have at all; c, which may be nil, is the container of
// it in question. A degraded feature is in force as well as it can be here. What the pod itself names it gets or does not start; of
// what the node names, each pod needs what the policy would set for it.
func (g *Engine) unavailable(v *node.View, p *workload.Pod, c *workload.Container) error {
	if p.Ask.Required.Empty() && v.FailClosed.Empty() {
		return nil
	}
	states := g.views.States()
	var reasons []string
	for _, f := range demanded(v, p).List() {
		s, ok := states[f]
		if !ok || s.State == feature.Active || s.State == feature.Degraded {
			continue
		}
		switch {
		case p.Ask.Required.Has(f):
			reasons = append(reasons, fmt.Sprintf("%s is %s here (%s)", f, s.State, s.Detail))
		case needs(v, p, c, f):
			reasons = append(reasons, fmt.Sprintf("%s is %s here (%s), and this node is configured to fail closed without it", f, s.State, s.Detail))
		}
	}
	return refuse(reasons)
}

// needs reports whether the policy would set something of a feature for a pod, or for one container of it, if the node had it.
func needs(v *node.View, p *workload.Pod, c *workload.Container, f protocol.Feature) bool {
	switch f {
	case protocol.FeatureDevices: // the devices of a machine that has none cannot be imagined
		return len(p.Ask.Devices) > 0
	case protocol.FeatureNetwork: // stands on no cgroup
		return p.Ask.Network != nil
	}
	able := *v
	for k := range able.Kernel.Knobs {
		able.Kernel.Knobs[k].OK = true
	}
	able.Kernel.RDT.Mounted, able.Kernel.RDT.L3, able.Ceded = true, true, 0
	able.Limits.CoreSched, able.Limits.PodResctrl = true, true
	if f == protocol.FeatureLLC {
		_, _, ok := llc.GroupOf(&able, p)
		return ok || p.Ask.Resctrl != nil // which a node may be able to give
	}
	pl, _ := podpolicy.Decide(&able, p, podpolicy.Sums{})
	if c != nil {
		own, _ := containerpolicy.Decide(&able, p, c)
		pl = append(pl, own...)
	}
	return owners(pl).Has(f)
}

// owners are the features that write something of a plan.
func owners(pl plan.Plan) (out protocol.FeatureSet) {
	for i := range pl {
		if s := &pl[i]; !s.Observe {
			out = out.With(s.Owner)
		}
	}
	return out
}

// unproven is the refusal of a container whose start could not be proved, because of why. Of what the node demands it counts what is
// planned for the container or its pod, or all where nothing has been decided. It needs memory only.
func (g *Engine) unproven(sb Sandbox, id, why string) error {
	if g.o.Beside != nil && g.o.Beside() {
		return nil // whoever is beside us has proved the start before the first instruction
	}
	pod, known := g.reg.pod(sb.ID)
	if !known {
		pod.p = sb.Read()
	}
	must := demanded(g.views.Load(), pod.p)
	if e, ok := g.reg.container(id); ok && e.gen != 0 {
		must &= owners(e.plan) | owners(pod.plan) | pod.p.Ask.Required
	}
	if must.Empty() {
		return nil
	}
	return refuse([]string{nameOf(must) + " could not be proved: " + why})
}

// nameOf lists features for people.
func nameOf(set protocol.FeatureSet) string {
	var names []string
	for _, f := range set.List() {
		names = append(names, f.String())
	}
	return strings.Join(names, ", ")
}

// withPod is what is read back at a start: the container's plan and, where a demanded feature has something there — on v2 all of
// block IO, protections, the pod's own limits — the pod's, and that of its resctrl group.
func (g *Engine) withPod(v *node.View, all plan.Plan, sandbox string, must protocol.FeatureSet) plan.Plan {
	pod, ok := g.reg.pod(sandbox)
	if must.Empty() || !ok {
		return all
	}
	out := slices.Clip(all)
	if owners(pod.plan)&must != 0 {
		for i := range pod.plan {
			if !pod.plan[i].Observe {
				out = append(out, pod.plan[i])
			}
		}
	}
	if must.Has(protocol.FeatureLLC) && pod.group != "" {
		_, lines, _ := llc.PodGroup(v, pod.p) // its problems were told when the pod was taken in
		out = append(out, lines...)
	}
	if len(out) > len(all) && g.o.Beside != nil && g.o.Beside() {
		return all // whoever is beside us has proved the pod before the first instruction
	}
	return out
}

// apart is the demanded group of a pod's own that a container is not in: its class's, where it is meanwhile, is no substitute.
func (g *Engine) apart(v *node.View, p *workload.Pod, e *entry, must protocol.FeatureSet) []string {
	name, ok := llc.OwnGroup(v, p)
	if !ok || !must.Has(protocol.FeatureLLC) || e.c.Base.RDT != "" || g.o.Beside != nil && g.o.Beside() {
		return nil
	}
	if s := e.plan.Get(plan.RDTClass); s != nil && s.Value == plan.Text(name) {
		return nil // that is read back
	}
	return []string{"the pod has no resctrl group of its own (" + protocol.FeatureLLC.String() + "): this node cannot give what it asks for, or none is left"}
}

// unset are the demanded settings that only the specification could carry and does not.
func unset(e *entry, must protocol.FeatureSet) (reasons []string) {
	if must.Empty() {
		return nil
	}
	for i := range e.plan {
		s := &e.plan[i]
		if s.Observe || !must.Has(s.Owner) || !specOnly.Has(s.Knob) || e.inSpec && e.rest.Find(s.Target, s.Knob, s.Key) == nil {
			continue
		}
		reasons = append(reasons, fmt.Sprintf("%s %s (%s) is not in the container's specification", s.Knob, s.Key, s.Owner))
	}
	return reasons
}
