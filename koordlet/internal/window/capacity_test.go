// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package window

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/koord-rt/koord-rt/model/sample"
)

// What the collectors measure of a pod and of a container (koordlet/internal/collect): with a quota, on a kernel that has all
// of it. Cold pages are the Anolis kernel's alone.
var (
	fastOfBoth = []sample.Metric{
		sample.CPUUsage, sample.CPUThrottled, sample.CPUThrottledTime, sample.CPUPeriods, sample.MemoryUsage, sample.MemoryWithPageCache,
	}
	slowOfBoth = []sample.Metric{
		sample.PageCache, sample.PSICPUSome, sample.PSICPUFull, sample.PSIMemorySome, sample.PSIMemoryFull, sample.PSIIOSome, sample.PSIIOFull,
		sample.RunQueueDelay, sample.MemoryAllocStall, sample.DiskReadBytes, sample.DiskWriteBytes, sample.DiskReadIOPS, sample.DiskWriteIOPS,
	}
	ofContainer = []sample.Metric{sample.MemoryCharged, sample.Cycles, sample.Instructions}
	ofPod       = []sample.Metric{
		sample.StallCPUSome, sample.StallCPUOwn, sample.StallMemorySome, sample.StallIOSome,
		sample.NetworkReceive, sample.NetworkTransmit, sample.MemoryAllocLatency, sample.DiskLatency, sample.NetworkRTT,
	}
	ofAnolis = []sample.Metric{sample.MemoryWithHotPages, sample.MemoryColdPages}
)

// whole is one sample of everything there is to measure on a node.
func whole(pods, containers int, more ...sample.Metric) []sample.Sample {
	var batch []sample.Sample
	add := func(s sample.Subject, lists ...[]sample.Metric) {
		for _, m := range slices.Concat(lists...) {
			batch = append(batch, sample.Sample{Subject: s, Metric: m, Value: 1, At: at(1)})
		}
	}
	for i := range pods {
		add(sample.OfPod(fmt.Sprint("p", i)), fastOfBoth, slowOfBoth, ofPod, more)
	}
	for i := range containers {
		add(sample.OfContainer(fmt.Sprint("c", i)), fastOfBoth, slowOfBoth, ofContainer, more)
	}
	return batch
}

// ofNode is what the node's own subjects have, on a machine of four memory nodes.
func ofNode() []sample.Sample {
	var batch []sample.Sample
	add := func(s sample.Subject, first, last sample.Metric) {
		for m := first; m <= last; m++ {
			batch = append(batch, sample.Sample{Subject: s, Metric: m, Value: 1, At: at(1)})
		}
	}
	add(sample.OfNode(), sample.CPUUsage, sample.NetworkTransmit)
	add(sample.OfSystem(), sample.CPUUsage, sample.MemoryUsage)
	for i := range 4 {
		add(sample.OfNUMA(i), sample.CPUUsage, sample.MemoryWithPageCache)
		add(sample.OfSystemNUMA(i), sample.CPUUsage, sample.MemoryUsage)
	}
	return batch
}

// TestCapacity: the bound holds what the largest node needs, and no node pays for what it has not.
func TestCapacity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		batch       []sample.Sample
		most, least int // of MiB
	}{
		"500 containers":             {whole(250, 500), 21, 16},
		"500 containers, a pod each": {whole(500, 500, ofAnolis...), 31, 25},
		"240 containers":             {whole(80, 240), 9, 6},
		"a flood":                    {whole(1000, 2000), 31, 30},
		"nobody":                     {nil, 0, 0},
	} {
		m := New(Options{})
		m.Append(c.batch)
		pods := m.Stats()
		m.Append(ofNode())
		got := m.Stats()
		refused := name == "a flood"
		if refused != (pods.Refused > 0) || got.Refused != pods.Refused {
			t.Errorf("%s: %d refused, %d of the node", name, pods.Refused, got.Refused-pods.Refused)
		}
		if pods.Bytes > c.most<<20 || pods.Bytes < c.least<<20 || got.Bytes > DefaultMaxBytes {
			t.Errorf("%s: %d bytes, with the node %d", name, pods.Bytes, got.Bytes)
		}
		if counted := count(m); counted != got.Bytes {
			t.Errorf("%s: %d bytes are told, %d counted", name, got.Bytes, counted)
		}
	}
}

// count adds up what the allocator gives for each series.
func count(m *Memory) (total int) {
	class := func(size uintptr) int { return int((size + 255) / 256 * 256) } // classes 768 and 2304 of the Go runtime
	for _, e := range m.subjects {
		total += len(e.fast)*class(unsafe.Sizeof(fast{})) + len(e.slow)*class(unsafe.Sizeof(slow{}))
	}
	return total
}
