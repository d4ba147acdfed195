// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"cmp"
	"slices"

	"github.com/koord-rt/koord-rt/model/topo"
)

// domain is the CPUs below one cache of one NUMA node.
type domain struct{ node, l3 int }

// core is one physical core.
type core struct {
	domain
	socket, id int
}

func domainOf(c *topo.CPU) domain { return domain{c.Node, c.L3} }
func coreOf(c *topo.CPU) core     { return core{domainOf(c), c.Socket, c.Core} }

// siblings are the members of set and all threads of their cores.
func siblings(t *topo.Topology, set topo.CPUSet) topo.CPUSet {
	if set.Empty() {
		return topo.CPUSet{}
	}
	cores := map[core]bool{}
	for i := range t.CPUs {
		if set.Has(t.CPUs[i].ID) {
			cores[coreOf(&t.CPUs[i])] = true
		}
	}
	var ids []int
	for i := range t.CPUs {
		if cores[coreOf(&t.CPUs[i])] {
			ids = append(ids, t.CPUs[i].ID)
		}
	}
	return topo.CPUs(ids...)
}

// choose takes n CPUs from the tiers, all of one before any of the next. Of each tier it keeps what have holds, gives
// back from where least is held, and adds where most is held already.
func choose(t *topo.Topology, tiers []topo.CPUSet, have topo.CPUSet, n int) topo.CPUSet {
	var out topo.CPUSet
	for _, tier := range tiers {
		k := min(n-out.Len(), tier.Len())
		if k <= 0 {
			continue
		}
		keep := tier.Intersect(have)
		if keep.Len() > k {
			keep = topo.CPUs(ranked(t, keep, out)[:k]...)
		}
		out = out.Union(keep)
		if more := k - keep.Len(); more > 0 {
			out = out.Union(topo.CPUs(ranked(t, tier.Minus(keep), out)[:more]...))
		}
	}
	return out
}

// tally counts CPUs of a set.
type tally struct {
	node   map[int]int
	domain map[domain]int
	core   map[core]int
}

func count(t *topo.Topology, set topo.CPUSet) tally {
	n := tally{map[int]int{}, map[domain]int{}, map[core]int{}}
	for i := range t.CPUs {
		c := &t.CPUs[i]
		if set.Has(c.ID) {
			n.node[c.Node]++
			n.domain[domainOf(c)]++
			n.core[coreOf(c)]++
		}
	}
	return n
}

// ranked orders the candidates: the NUMA node, then the cache, that hold most of held, then that offer most; there cores
// that held has a thread of, then whole cores, then parts. Ties go to high numbers, because interrupts and the system's
// own work gather on the low ones.
func ranked(t *topo.Topology, candidates, held topo.CPUSet) []int {
	has, offers, threads := count(t, held), count(t, candidates), count(t, t.All())
	class := func(c core) int {
		switch {
		case has.core[c] > 0:
			return 0
		case offers.core[c] == threads.core[c]:
			return 1
		default:
			return 2
		}
	}
	cpus := make([]*topo.CPU, 0, candidates.Len())
	for i := range t.CPUs {
		if candidates.Has(t.CPUs[i].ID) {
			cpus = append(cpus, &t.CPUs[i])
		}
	}
	slices.SortFunc(cpus, func(x, y *topo.CPU) int {
		a, b := coreOf(x), coreOf(y)
		return cmp.Or(
			cmp.Compare(has.node[b.node], has.node[a.node]), cmp.Compare(offers.node[b.node], offers.node[a.node]), cmp.Compare(b.node, a.node),
			cmp.Compare(has.domain[b.domain], has.domain[a.domain]),
			cmp.Compare(offers.domain[b.domain], offers.domain[a.domain]), cmp.Compare(b.l3, a.l3),
			cmp.Compare(class(a), class(b)), cmp.Compare(b.socket, a.socket), cmp.Compare(b.id, a.id), cmp.Compare(x.ID, y.ID))
	})
	ids := make([]int, len(cpus))
	for i, c := range cpus {
		ids[i] = c.ID
	}
	return ids
}
