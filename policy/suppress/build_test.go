// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package suppress

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// machine builds a topology whose second threads follow all first threads, as on x86.
func machine(nodes, caches, cores, threads int) *topo.Topology {
	var cpus []topo.CPU
	id := 0
	for range threads {
		for n := range nodes {
			for c := range caches {
				for k := range cores {
					cpus = append(cpus, topo.CPU{ID: id, Core: c*cores + k, Socket: n, Node: n, L3: n*caches + c})
					id++
				}
			}
		}
	}
	return topo.New(cpus, topo.Range(0, nodes-1))
}

// enabled is the default strategy, switched on.
func enabled(change func(*strategy.ResourceThresholdStrategy)) strategy.ResourceThresholdStrategy {
	on := true
	full := strategy.Effective(strategy.Spec{ResourceUsedThresholdWithBE: &strategy.ResourceThresholdStrategy{Enable: &on}})
	t := *full.ResourceUsedThresholdWithBE
	if change != nil {
		change(&t)
	}
	return t
}

func byQuota(t *strategy.ResourceThresholdStrategy) {
	policy := strategy.SuppressCFSQuota
	t.CPUSuppressPolicy = &policy
}

func minPercent(n int64) func(*strategy.ResourceThresholdStrategy) {
	return func(t *strategy.ResourceThresholdStrategy) { t.CPUSuppressMinPercent = &n }
}

// use is a usage in whole CPUs; the node uses what its parts do.
func use(ls, be, hosts, system float64) Usage {
	m := func(f float64) unit.Measured[unit.MilliCPU] { return unit.Got(unit.MilliCPU(f * 1000)) }
	return Usage{Node: m(ls + be + hosts + system), LSPods: m(ls), BEPods: m(be), LSHostApps: m(hosts), BEHostApps: m(0)}
}

// ticks runs one step a second and returns the last state and output; each sees every output.
func ticks(t *testing.T, s State, in Input, n int, each func(i int, s State, o Output)) (State, Output) {
	t.Helper()
	var out Output
	for i := range n {
		in.Now += unit.Second
		s, out = Step(s, in)
		if each != nil {
			each(i, s, out)
		}
	}
	return s, out
}

// some is a pressure reading.
func some(f unit.Fraction) Pressure { return Pressure{Some: unit.Got(f)} }
