// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"math/rand/v2"
	"testing"

	"github.com/koord-rt/koord-rt/model/topo"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	// Two sockets of four cores with two threads: node 0 has 0-3 and 8-11, node 1 has 4-7 and 12-15.
	smt := machine(2, 1, 4, 2)
	// Two nodes of two caches of two cores: caches 0-1, 2-3 | 4-5, 6-7, second threads at +8.
	ccx := machine(2, 2, 2, 2)
	all := smt.All()
	set := func(list string) topo.CPUSet {
		s, err := topo.ParseCPUSet(list)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, tc := range map[string]struct {
		top   *topo.Topology
		tiers []topo.CPUSet
		have  string
		n     int
		want  string
	}{
		"whole cores of one node":               {smt, []topo.CPUSet{all}, "", 4, "6-7,14-15"},
		"the larger node first":                 {smt, []topo.CPUSet{set("0-3,8-11,4,12")}, "", 4, "2-3,10-11"},
		"the next node only when one is full":   {smt, []topo.CPUSet{all}, "", 10, "3-7,11-15"},
		"completes a core first":                {smt, []topo.CPUSet{all}, "1,9,2", 4, "1-2,9-10"},
		"stays in its node":                     {smt, []topo.CPUSet{all}, "0,8", 6, "0,2-3,8,10-11"},
		"keeps what it has on both nodes":       {smt, []topo.CPUSet{all}, "0,8,5,13,6,14", 8, "0,5-8,13-15"},
		"gives back where least is held":        {smt, []topo.CPUSet{all}, "0,8,5,13,6,14", 4, "5-6,13-14"},
		"gives back half cores first":           {smt, []topo.CPUSet{all}, "5,13,6,7,15", 4, "5,7,13,15"},
		"one thread when the count is odd":      {smt, []topo.CPUSet{all}, "", 3, "6-7,15"},
		"a part of a core before a second node": {smt, []topo.CPUSet{set("0-3,5,6,13,14,7")}, "6,14,5,13", 5, "5-7,13-14"},
		"what it had is gone":                   {smt, []topo.CPUSet{set("0-3,8-11")}, "4-7", 2, "3,11"},
		"one cache":                             {ccx, []topo.CPUSet{ccx.All()}, "", 4, "6-7,14-15"},
		"the other cache of the node":           {ccx, []topo.CPUSet{ccx.All()}, "6-7,14-15", 6, "5-7,13-15"},
		"second tier when the first is used up": {smt, []topo.CPUSet{set("0-1"), set("4-5")}, "4", 3, "0-1,4"},
		"first tier although the second is had": {smt, []topo.CPUSet{set("0-1"), set("4-5")}, "4-5", 2, "0-1"},
		"more than there is":                    {smt, []topo.CPUSet{set("0-1"), set("4-5")}, "", 9, "0-1,4-5"},
		"none":                                  {smt, []topo.CPUSet{all}, "0-3", 0, ""},
		"no tier":                               {smt, nil, "0-3", 4, ""},
	} {
		if got := choose(tc.top, tc.tiers, set(tc.have), tc.n).String(); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestTiersKeepAwayFromOthers(t *testing.T) {
	t.Parallel()
	// LSE on core 0, LSR on thread 1 of core 1, core 2 reserved by half, core 3 exclusive to SYSTEM pods.
	w := work{s: &State{}, in: &Input{CPUs: CPUs{
		Topology: machine(1, 1, 6, 2), LSE: topo.CPUs(0), LSR: topo.CPUs(1), Reserved: topo.CPUs(2), SystemExclusive: topo.CPUs(3, 9),
	}}}
	got := w.tiers()
	for i, want := range []string{"4-5,8,10-11", "6-7", "1"} {
		if got[i].String() != want {
			t.Errorf("tier %d is %s, want %s", i, got[i], want)
		}
	}
}

// TestChooseProperties: over random machines, claims and histories the choice has the wanted size, keeps or only gives
// back what was held, and a fresh one lies on as few NUMA nodes as possible with at most one split core.
func TestChooseProperties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for range 3000 {
		top := machine(1+r.IntN(4), 1+r.IntN(3), 1+r.IntN(6), 1+r.IntN(2))
		tier := pickSome(r, top.All())
		have := pickSome(r, top.All()).Intersect(tier)
		n := r.IntN(top.All().Len() + 2)
		got := choose(top, []topo.CPUSet{tier}, have, n)
		if got.Len() != min(n, tier.Len()) || !got.SubsetOf(tier) {
			t.Fatalf("%d CPUs of %s: got %s", n, tier, got)
		}
		if n >= have.Len() && !have.SubsetOf(got) || n <= have.Len() && !got.SubsetOf(have) {
			t.Fatalf("had %s, wanted %d, got %s", have, n, got)
		}
		if again := choose(top, []topo.CPUSet{tier}, got, n); !again.Equal(got) {
			t.Fatalf("not stable: %s, then %s", got, again)
		}
		fresh := choose(top, []topo.CPUSet{top.All()}, topo.CPUSet{}, n)
		perNode := top.NodeCPUs(0).Len()
		if nodes := len(count(top, fresh).node); nodes != (fresh.Len()+perNode-1)/perNode {
			t.Fatalf("%d CPUs on %d nodes of %d CPUs: %s", n, nodes, perNode, fresh)
		}
		split := 0
		threads := count(top, top.All()).core
		for c, k := range count(top, fresh).core {
			if k != threads[c] {
				split++
			}
		}
		if split > 1 {
			t.Fatalf("%d split cores in %s", split, fresh)
		}
	}
}

// pickSome is a random subset.
func pickSome(r *rand.Rand, of topo.CPUSet) topo.CPUSet {
	var ids []int
	for _, id := range of.List() {
		if r.IntN(3) > 0 {
			ids = append(ids, id)
		}
	}
	return topo.CPUs(ids...)
}
