// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// dynamic is what containers that are made from now on, and those that run, are to follow.
func dynamic(f *Facts, s *State, held *suppress.Output) node.Dynamic {
	system, exclusive := f.systemQoS()
	tick := &s.tick
	d := node.Dynamic{
		BEQuota:   s.TierHeld,
		SystemQoS: system, SystemQoSExclusive: exclusive, Normalization: f.normalization(),
		Quotas: s.memo.quotaLoops(tick.Burst.Raises, held.Pods), MemoryHigh: s.memo.memoryHighs(tick.Memory.Highs),
		OOMScores: s.memo.oomScores(tick.OOMScore.Scores),
		Network:   networkState(&tick.Network), DiskLimits: diskLimits(s.Disks),
	}
	switch held.Mode {
	case suppress.CPUSet:
		d.BECPUs, d.BESharesLSR = held.CPUs, held.SharesLSR
	case suppress.Unknown: // what is in force stays
		d.BECPUs, d.BESharesLSR = f.View.Dynamic.BECPUs, f.View.Dynamic.BESharesLSR
		d.BEQuota = s.TierHeld || f.View.Dynamic.BEQuota
	}
	apart := f.reservedCPUs()
	if exclusive {
		apart = apart.Union(system)
	}
	be := f.all().Minus(apart).Minus(f.View.Claims.LSE)
	shared := be.Minus(f.View.Claims.LSR)
	if own := f.kubeletsOwn(); !own.Empty() {
		shared = shared.Minus(own)
	}
	d.SharePools, d.BESharePools = s.memo.sharePools(f, [2]topo.CPUSet{shared, be})
	return d
}

// kubeletsOwn are the CPUs that the kubelet has given to pods alone. One that has gone, whose entry the kubelet has not cleaned up, has none;
// a class of ours has the CPUs that the scheduler names. Before the pods are known every entry counts.
func (f *Facts) kubeletsOwn() (set topo.CPUSet) {
	for uid, own := range f.KubeletCPUs { // the order changes nothing
		if f.Pods != nil && f.Pods.Generation != 0 {
			if p, here := f.Pods.Pod(uid); !here || p.Finished() || p.QoS == protocol.QoSLSE || p.QoS == protocol.QoSLSR {
				continue
			}
		}
		set = set.Union(own)
	}
	return set
}

// pools cuts a set by NUMA node.
func (f *Facts) pools(set topo.CPUSet) (out []node.Pool) {
	if f.View.Topology == nil {
		return nil
	}
	done := map[int]bool{}
	for _, c := range f.View.Topology.CPUs {
		if !set.Has(c.ID) || done[c.Node] {
			continue
		}
		done[c.Node] = true
		out = append(out, node.Pool{Socket: c.Socket, Node: c.Node, CPUs: set.Intersect(f.View.Topology.NodeCPUs(c.Node))})
	}
	return out
}
