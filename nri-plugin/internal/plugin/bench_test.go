// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine/enginetest"
)

const batch = `{"containers":{"app":{"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"536870912"},"requests":{"kubernetes.io/batch-cpu":"500"}}}}`

// full is a host with a thousand containers that have been synchronized and repaired.
func full(b *testing.B) *host { return filled(b, 100) }

// filled is such a host with pods of ten containers.
func filled(b testing.TB, pods int) *host {
	b.Helper()
	h := newHost(b, "6.1")
	h.rt = newRuntime(b, h.socket)
	for i := range pods {
		sb := h.sandbox(b, fmt.Sprintf("p%d", i), "LS", nil)
		var ctrs []*api.Container
		for j := range 10 {
			ctr := ctrOf(sb, fmt.Sprintf("c%d", j))
			ctr.State = api.ContainerState_CONTAINER_RUNNING
			h.runc(b, ctr, nil)
			ctrs = append(ctrs, ctr)
		}
		h.rt.add(sb, ctrs...)
	}
	h.run(b)
	enginetest.Eventually(b, "repair", func() bool {
		last := fmt.Sprintf("p%d", pods-1)
		return h.tree.Get(b, "/kubepods/burstable/pod"+last+"/sandbox-"+last+"-c9", "cpu.max.burst") == "100000"
	})
	return h
}

// TestCreateAllocations: what the whole handler costs in garbage, guard, decision, adjustment and the registry's entry: 48 of a BE pod and 37
// of an LS pod when it was written; the race detector has up to 5 more, since it drops what a pool keeps.
func TestCreateAllocations(t *testing.T) {
	h := filled(t, 4) // without drift checks, whose repairs would be counted, too
	for qos, most := range map[string]float64{"BE": 58, "LS": 46} {
		sb := h.pod(t, "new-"+qos, qos, map[string]string{protocol.AnnotationExtendedResource: batch})
		const runs = 201 // AllocsPerRun calls once more than it counts
		least := math.Inf(1)
		for try := 0; try < 5 && least > most; try++ { // a machine without CPU time puts off what is done in the background until now, which counts
			ctrs := make([]*api.Container, runs)
			for i := range ctrs {
				ctrs[i] = ctrOf(sb, "app")
				ctrs[i].Id = fmt.Sprintf("%s-%d-%d", qos, try, i)
			}
			i := 0
			least = min(least, testing.AllocsPerRun(runs-1, func() {
				if adj, _, err := h.plugin.CreateContainer(t.Context(), sb, ctrs[i]); err != nil || adj == nil {
					t.Fatal(adj, err)
				}
				i++
			}))
		}
		if least > most {
			t.Errorf("CreateContainer of a %s pod takes %v allocations, want at most %v", qos, least, most)
		}
	}
}

// TestUpdateAllocations: the same of a resize of an LS container, down and up by turns, with what lowers its burst on a kernel on paper: 53 when it
// was written.
func TestUpdateAllocations(t *testing.T) {
	h := filled(t, 4)
	sb := h.pod(t, "resized", "LS", nil)
	ctr := ctrOf(sb, "app")
	h.create(t, sb, ctr)
	must(t, h.plugin.StartContainer(t.Context(), sb, ctr))
	const runs, most = 201, 64
	to := [...]*api.LinuxResources{resources(512, 50000, 1<<30), resources(512, 100000, 1<<30)}
	least := math.Inf(1)
	for try := 0; try < 5 && least > most; try++ {
		i := 0
		least = min(least, testing.AllocsPerRun(runs-1, func() {
			if u, err := h.plugin.UpdateContainer(t.Context(), sb, ctr, to[i%len(to)]); err != nil || len(u) == 0 {
				t.Fatal(u, err)
			}
			i++
		}))
	}
	if least > most {
		t.Errorf("UpdateContainer takes %v allocations, want at most %v", least, most)
	}
	if burst := h.tree.Get(t, ctr.Linux.CgroupsPath, "cpu.max.burst"); burst != "25000" { // half of the quota, and the last was one down
		t.Errorf("the burst was not lowered: it is %s", burst)
	}
}

// BenchmarkCreateHandler is the whole handler, guard included, with 1,000 containers in the view; p99 and p50 in µs.
func BenchmarkCreateHandler(b *testing.B) {
	h := full(b)
	sb := h.pod(b, "be", "BE", map[string]string{protocol.AnnotationExtendedResource: batch})
	var took []time.Duration
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		ctr := ctrOf(sb, "app")
		ctr.Id = fmt.Sprintf("id-%d", i)
		i++
		start := time.Now()
		adj, _, err := h.plugin.CreateContainer(b.Context(), sb, ctr)
		took = append(took, time.Since(start))
		if err != nil || adj == nil {
			b.Fatal(adj, err)
		}
		if err := h.plugin.RemoveContainer(b.Context(), sb, ctr); err != nil {
			b.Fatal(err)
		}
	}
	report(b, took)
}

// BenchmarkStartHandler is StartContainer of a container whose plan holds: direct writes are none, the proof reads all.
func BenchmarkStartHandler(b *testing.B) {
	h := full(b)
	sb := h.pod(b, "be", "BE", map[string]string{protocol.AnnotationExtendedResource: batch})
	ctr := ctrOf(sb, "app")
	h.create(b, sb, ctr)
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if err := h.plugin.StartContainer(b.Context(), sb, ctr); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	report(b, took)
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	at := func(p float64) float64 { return float64(took[int(float64(len(took)-1)*p)].Nanoseconds()) / 1000 }
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
}
