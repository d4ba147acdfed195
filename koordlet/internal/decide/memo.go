// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"slices"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/burst"
	"github.com/koord-rt/koord-rt/policy/container"
	"github.com/koord-rt/koord-rt/policy/memqos"
	"github.com/koord-rt/koord-rt/policy/oomscore"
	"github.com/koord-rt/koord-rt/policy/pod"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// memo remembers what follows from values that never change, or from the same ones as at the step before, so that a second in which
// nothing changes leaves little to the garbage collector.
type memo struct {
	// quotas and bounds are those that stand without the loops. They follow from the View, the pod and the container alone.
	view   *node.View
	quotas map[based]unit.Micros
	bounds map[based]container.Bounds
	// names are "namespace/name".
	names map[*workload.Pod]string
	// pools are those of the two sets before: what all share, and what best-effort pods share.
	topology *topo.Topology
	sets     [2]topo.CPUSet
	pools    [2][]node.Pool
	// marked is how many containers the memory loop looked at last, tunable how many that of OOM scores.
	marked, tunable int
	// loops and byContainer are for the handoff, and what each was made of last.
	raises      []burst.Raise
	caps        []suppress.PodCap
	loops       map[string]node.QuotaLoop
	highs       []memqos.High
	byContainer map[string]node.MemoryHigh
	scores      []oomscore.Score
	scored      map[string]node.OOMScore
}

// based is whose value it is; the pod's own without a container.
type based struct {
	pod       *workload.Pod
	container *workload.Container
}

// maxMemo bounds what is remembered of those who have gone.
const maxMemo = 4096

// follow forgets what another View has decided.
func (m *memo) follow(v *node.View) {
	if m.view != v || len(m.quotas) > maxMemo || len(m.bounds) > maxMemo {
		m.view, m.quotas, m.bounds = v, map[based]unit.Micros{}, map[based]container.Bounds{}
	}
}

func (m *memo) memory(p *workload.Pod, c *workload.Container) container.Bounds {
	b, ok := m.bounds[based{p, c}]
	if !ok {
		b = container.BaseMemory(m.view, p, c)
		m.bounds[based{p, c}] = b
	}
	return b
}

func (m *memo) quota(p *workload.Pod, c *workload.Container) unit.Micros {
	q, ok := m.quotas[based{p, c}]
	if ok {
		return q
	}
	if c == nil {
		q = pod.BaseQuota(m.view, p)
	} else {
		q = container.BaseQuota(m.view, p, c)
	}
	m.quotas[based{p, c}] = q
	return q
}

func (m *memo) name(p *workload.Pod) string {
	name, ok := m.names[p]
	if ok {
		return name
	}
	if m.names == nil || len(m.names) > maxMemo {
		m.names = map[*workload.Pod]string{}
	}
	name = p.FullName()
	m.names[p] = name
	return name
}

// sharePools cuts two sets by NUMA node: the same values while the sets are the same.
func (m *memo) sharePools(f *Facts, sets [2]topo.CPUSet) (all, be []node.Pool) {
	known := m.topology == f.View.Topology
	m.topology = f.View.Topology
	for i := range sets {
		if !known || !m.sets[i].Equal(sets[i]) {
			m.sets[i], m.pools[i] = sets[i], f.pools(sets[i])
		}
	}
	return m.pools[0], m.pools[1]
}

// quotaLoops joins what is given and what is taken, by pod: the same map while both are the same.
func (m *memo) quotaLoops(raises []burst.Raise, caps []suppress.PodCap) map[string]node.QuotaLoop {
	if !slices.Equal(raises, m.raises) || !slices.Equal(caps, m.caps) {
		m.raises, m.caps, m.loops = raises, caps, quotas(raises, caps)
	}
	return m.loops
}

// memoryHighs are the memory.high of the loop by container: the same map while they are the same.
func (m *memo) memoryHighs(list []memqos.High) map[string]node.MemoryHigh {
	if !slices.Equal(list, m.highs) {
		m.highs, m.byContainer = list, highs(list)
	}
	return m.byContainer
}

// oomScores are the OOM scores of the loop by container: the same map while they are the same.
func (m *memo) oomScores(list []oomscore.Score) map[string]node.OOMScore {
	if !slices.Equal(list, m.scores) {
		m.scores, m.scored = list, oomScores(list)
	}
	return m.scored
}
