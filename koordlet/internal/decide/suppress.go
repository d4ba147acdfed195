// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/predict"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// suppressInput is what CPU suppression looks at. Usage is the last second's, so that a rise is answered at once.
func suppressInput(f *Facts, a *accounts, held []suppress.Antagonist) suppress.Input {
	in := suppress.Input{
		Now: f.Now, Urgent: f.Urgent, Strategy: *f.View.Strategy.ResourceUsedThresholdWithBE,
		CPUs: suppress.CPUs{
			Topology: f.View.Topology, Reserved: f.reservedCPUs(), LSE: f.View.Claims.LSE, LSR: f.View.Claims.LSR,
		},
		Pressure: suppress.Pressure{Pods: a.stalls, Waiting: f.Waiting}, Antagonists: held,
	}
	if system, exclusive := f.systemQoS(); exclusive {
		in.CPUs.SystemExclusive = system
	}
	whole := f.cpu(sample.OfNode())
	if ByQuota(f.View) {
		in.Strategy.CPUSuppressPolicy = new(strategy.SuppressCFSQuota)
	}
	in.Usage = suppress.Usage{Node: whole, LSHostApps: a.lsApps, BEHostApps: a.beApps, Reserved: f.reserved()}
	if whole.OK {
		beyond := a.beyond(&in.Strategy)
		in.Usage.LSPods, in.Usage.BEPods = unit.Got(a.ls+beyond), unit.Got(a.be-beyond)
		if all := f.last(sample.OfQoS(protocol.QoSBE), sample.ClassCPU); all.Known() {
			in.Usage.BEUntold = unit.Got(milli(all).V - a.below)
		}
	}
	return in
}

// ByQuota reports whether a quota holds the tier down: because the strategy asks for it, or as NoSet says.
func ByQuota(v *node.View) bool {
	t := v.Strategy.Threshold()
	return quotaAsked(&t) || NoSet(v) != ""
}

func quotaAsked(t *strategy.ResourceThresholdStrategy) bool {
	return t.CPUSuppressPolicy != nil && *t.CPUSuppressPolicy == strategy.SuppressCFSQuota
}

// NoSet says why the set of CPUs that the strategy asks for would hold nobody down; empty where it does. The kubelet's static CPU manager
// gives a set to every container and writes it again each ten seconds, so ours leaves them alone (policy/container). It has no business
// with the quota of a class.
func NoSet(v *node.View) string {
	t := v.Strategy.Threshold()
	if quotaAsked(&t) || !v.Kernel.KubeletStaticCPU {
		return ""
	}
	return "the kubelet's static CPU manager sets the CPUs of every container: a quota (" + strategy.SuppressCFSQuota + ") holds best effort down instead of a set"
}

// beyond is what BE pods use that the quota of the class cannot hold, because their requests have put them into another class of
// Kubernetes: the class gets that much less.
func (a *accounts) beyond(t *strategy.ResourceThresholdStrategy) (sum unit.MilliCPU) {
	if !quotaAsked(t) {
		return 0
	}
	for i := range a.pods {
		if u := &a.pods[i]; !u.again && u.class == protocol.QoSBE && u.member.Pod.KubeQoS != protocol.KubeBestEffort {
			sum += u.cpu.V
		}
	}
	return sum
}

// Watch reports whether the pods' CPU pressure is to be read in each tick instead of slowly: while it holds the tier down, which
// ends ten seconds after it has.
func Watch(s *State) bool { return s.Suppress.Press.Capped }

// reserved is what the node keeps for itself:
//
//	max(capacity − allocatable, the amount of the annotation reservation, CPUs that it or the configuration names)
//
// where allocatable is the kubelet's own: what the manager amplifies hides what is kept.
func (f *Facts) reserved() unit.MilliCPU {
	own := unit.MilliCPU(f.reservedCPUs().Len() * 1000)
	if f.Node == nil {
		return own
	}
	offered, _ := predict.Allocatable(f.Node.Allocatable, f.Node.Annotations[protocol.AnnotationRawAllocatable])
	if offered.CPU > 0 {
		own = max(own, f.Node.Capacity.CPU-offered.CPU)
	}
	_, amount := f.reservation()
	return max(own, amount)
}

// reservedCPUs are nobody's but the system's: the configuration's, and those that the node's annotation names.
func (f *Facts) reservedCPUs() topo.CPUSet {
	set, _ := f.reservation()
	return f.View.Claims.Reserved.Union(set)
}
