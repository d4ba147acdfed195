// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine/enginetest"
)

const batch = `{"containers":{"app":{"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"536870912"},"requests":{"kubernetes.io/batch-cpu":"500"}}}}`

// full is a host with a thousand containers that have been synchronized and repaired.
func full(b testing.TB) *host {
	b.Helper()
	h := newHost(b, "6.1")
	h.rt = newRuntime(b, h.socket)
	for i := range 100 {
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
		return h.tree.Get(b, "/kubepods/burstable/podp99/sandbox-p99-c9", "cpu.max.burst") == "100000"
	})
	return h
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
