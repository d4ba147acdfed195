// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"fmt"

	"github.com/koord-rt/koord-rt/kernel/proc"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/kernel/sys"
	"github.com/koord-rt/koord-rt/kernel/usage"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// numas measures each NUMA node, and what of it belongs to the system:
//
//	cpu = Δticks of its CPUs / Δt
//	memory = MemTotal − (MemFree + Active(file) + Inactive(file) + SReclaimable) of its meminfo − free lists of the CPUs
//	system cpu = system's cpu · cpu / Σ cpu of all nodes
//	system memory = max(memory − Σ pods' and host applications' memory on it, 0)
//
// A cgroup's memory by node is read slowly (memory.numa_stat); in between its last reading counts. With a single node there is nothing
// to divide and nothing is read of cgroups.
type numas struct {
	nodes []numaNode
	parts each[numaPart]
}

type numaNode struct {
	id              int
	subject, system sample.Subject
	cpus            []int
	memory          *root.File[sys.NodeMemory]
	now             sys.NodeMemory
	cpu             sample.Rate
	cores           float64
	// rated and memoryOK: known in this tick.
	rated, memoryOK bool
	// taken is what pods and host applications have of it.
	taken unit.Bytes
}

// numaPart is a cgroup's memory by node.
type numaPart struct{ usage.NUMA }

func newNUMA(m *machine) (collector, support) {
	if m.opts.Topology == nil {
		return nil, support{no: "the topology is not known"}
	}
	c := &numas{}
	for _, id := range m.opts.Topology.Nodes.List() {
		f, err := m.sys.NodeMemoryFile(id)
		if err != nil {
			c.close()
			return nil, support{no: fmt.Sprintf("no memory of node %d: %v", id, err)}
		}
		c.nodes = append(c.nodes, numaNode{
			id: id, subject: sample.OfNUMA(id), system: sample.OfSystemNUMA(id), cpus: m.opts.Topology.NodeCPUs(id).List(), memory: f,
		})
	}
	return c, support{}
}

func (c *numas) collect(t *tick) {
	c.divide(t)
	var sum float64
	whole := true
	for i := range c.nodes {
		n := &c.nodes[i]
		n.read(t)
		sum += n.cores
		whole = whole && n.rated
	}
	if !t.told {
		return
	}
	cores, memory, known := t.system()
	at := t.machine.at
	for i := range c.nodes {
		n := &c.nodes[i]
		switch {
		case len(c.nodes) == 1 && t.machine.memoryOK:
			t.emit(n.system, sample.MemoryUsage, float64(memory), at)
		case len(c.nodes) > 1 && n.memoryOK:
			t.emit(n.system, sample.MemoryUsage, float64(n.now.Used(t.machine.lists.Node(n.id))-n.taken), at)
		}
		if whole && known && t.machine.rated {
			share := 0.0
			if sum > 0 {
				share = n.cores / sum
			}
			t.emit(n.system, sample.CPUUsage, cores*share, at)
		}
	}
}

// divide adds up the cgroups' memory on each node.
func (c *numas) divide(t *tick) {
	for i := range c.nodes {
		c.nodes[i].taken = 0
	}
	if len(c.nodes) < 2 {
		return
	}
	for _, p := range t.pods {
		c.take(t, &p.entry)
	}
	for _, a := range t.apps {
		c.take(t, a)
	}
}

func (c *numas) take(t *tick, e *entry) {
	if !e.fresh {
		return
	}
	part := c.parts.of(e)
	if t.due(e) && !t.table(e.cg.NUMA(t.buf, &part.NUMA)) {
		return
	}
	for i := range c.nodes[:min(len(c.nodes), len(part.Nodes))] {
		c.nodes[i].taken += part.Nodes[i].Anon + part.Nodes[i].Unevictable
	}
}

func (n *numaNode) read(t *tick) {
	n.rated, n.memoryOK = false, false
	if t.machine.statOK {
		var busy uint64
		for _, cpu := range n.cpus {
			if cpu < len(t.machine.stat.CPU) {
				busy += t.machine.stat.CPU[cpu].Busy()
			}
		}
		if d, ok := n.cpu.Next(busy, t.machine.at); ok {
			n.cores, n.rated = d.PerSecond()/proc.UserHZ, true
			t.emit(n.subject, sample.CPUUsage, n.cores, t.machine.at)
		}
	}
	err := n.memory.Read(t.buf, &n.now)
	t.report.NUMA = max(t.report.NUMA, outcome(err)) // one that failed counts for all
	if err != nil {
		t.fail(err)
		return
	}
	n.memoryOK = true
	at, lists := t.clock(), t.machine.lists.Node(n.id)
	t.emit(n.subject, sample.MemoryUsage, float64(n.now.Used(lists)), at)
	t.emit(n.subject, sample.MemoryWithPageCache, float64(n.now.UsedWithPageCache(lists)), at)
}

func (c *numas) forget(e *entry) { c.parts.forget(e) }

func (c *numas) close() {
	for i := range c.nodes {
		c.nodes[i].memory.Close()
	}
}
