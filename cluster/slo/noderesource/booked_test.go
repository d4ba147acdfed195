// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	wire "github.com/koord-rt/koord-rt/api/strategy"
	topologyv1alpha1 "github.com/koord-rt/koord-rt/api/topology/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/model/unit"
)

// marked has best-effort pods use some of the 30 GiB that they request, with batch-memory at 30 GB while 33 GB are calculated.
func marked(t *testing.T, used string) *scene {
	t.Helper()
	in := example(t)
	in.Metric.Status.NodeMetric.SystemUsage = usage("7", "15G")
	apply(in.Node, in.decide().Node) // 30 GB
	in.Metric.Status.NodeMetric.SystemUsage = usage("7", "12G")
	in.Metric.Status.PodsMetric[1].PodUsage = usage("10", used)
	in.Pods[1].Spec.Containers[0].Resources.Requests = resources(protocol.ResourceBatchCPU, "10k", protocol.ResourceBatchMemory, "30Gi")
	in.Config = strategy(t, map[string]string{config.KeyColocation: on, config.KeyThreshold: mark})
	return in
}

const mark = `{"clusterStrategy": {"enable": true, "memoryRequestUtilizationPercent": 80}}`

// TestBookedMemory is A8's second half: batch-memory is not raised while best-effort pods use 80 % of the memory that they have
// requested (24 of 30 GiB), and is when they use less (20 of 30). CPU goes on as ever, and what falls falls.
func TestBookedMemory(t *testing.T) {
	t.Parallel()
	slo := func(s wire.Wire) *slov1alpha1.NodeSLO {
		return &slov1alpha1.NodeSLO{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: slov1alpha1.NodeSLOSpec{Wire: s}}
	}
	yes, no, eighty := true, false, int64(80)
	for name, tc := range map[string]struct {
		used         string
		change       func(*testing.T, *scene)
		memory, held int64
	}{
		"24 of 30": {"24Gi", func(*testing.T, *scene) {}, 30e9, 3e9},
		"20 of 30": {"20Gi", func(*testing.T, *scene) {}, 33e9, 0},
		"disabled": {"24Gi", func(t *testing.T, in *scene) {
			in.Config = strategy(t, map[string]string{config.KeyColocation: on, config.KeyThreshold: `{"clusterStrategy": {"enable": false, "memoryRequestUtilizationPercent": 80}}`})
		}, 33e9, 0},
		"no mark": {"24Gi", func(t *testing.T, in *scene) {
			in.Config = strategy(t, map[string]string{config.KeyColocation: on, config.KeyThreshold: `{"clusterStrategy": {"enable": true}}`})
		}, 33e9, 0},
		"a node of another mark": {"24Gi", func(t *testing.T, in *scene) {
			in.Node.Labels["pool"] = "b"
			in.Config = strategy(t, map[string]string{config.KeyColocation: on, config.KeyThreshold: `{"clusterStrategy": {"enable": true, "memoryRequestUtilizationPercent": 80},
				"nodeStrategies": [{"name": "b", "nodeSelector": {"matchLabels": {"pool": "b"}}, "memoryRequestUtilizationPercent": 90}]}`})
		}, 33e9, 0},
		"the NodeSLO goes before": {"24Gi", func(_ *testing.T, in *scene) {
			in.SLO = slo(wire.Wire{ResourceUsedThresholdWithBE: &wire.ResourceThresholdStrategy{Enable: &no, MemoryRequestUtilizationPercent: &eighty}})
		}, 33e9, 0},
		"the documents' spelling": {"24Gi", func(t *testing.T, in *scene) {
			in.Config = strategy(t, map[string]string{config.KeyColocation: on})
			in.SLO = slo(wire.Wire{ResourceThresholdStrategy: &wire.WireThreshold{Enable: &yes, Thresholds: &wire.Thresholds{MemoryRequestUtilizationPercent: &eighty}}})
		}, 30e9, 3e9},
		"less is calculated": {"24Gi", func(_ *testing.T, in *scene) {
			in.Metric.Status.NodeMetric.SystemUsage = usage("7", "20G")
		}, 25e9, 0},
		"never lent": {"24Gi", func(_ *testing.T, in *scene) {
			delete(in.Node.Annotations, protocol.AnnotationOriginExtended)
			delete(in.Node.Status.Allocatable, protocol.ResourceBatchMemory)
		}, 33e9, 0},
		"a kubelet that came anew says 0": {"24Gi", func(_ *testing.T, in *scene) {
			apply(in.Node, map[string]any{"status": map[string]any{
				"capacity": map[string]any{protocol.ResourceBatchMemory: "0"}, "allocatable": map[string]any{protocol.ResourceBatchMemory: "0"},
			}})
		}, 30e9, 3e9},
		"others have booked of what is held": {"24Gi", func(_ *testing.T, in *scene) {
			in.Node.Annotations[protocol.AnnotationThirdPartyAllocs] = `{"allocations":[{"name":"yarn","priority":"koord-batch","resources":{"kubernetes.io/batch-memory":"5G"}}]}`
		}, 25e9, 3e9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := marked(t, tc.used)
			tc.change(t, in)
			in.Metric.Status.PodsMetric[0].PodUsage = usage("6", "11G") // 30 CPUs
			for _, when := range []string{"at once", "and then once more"} {
				out := in.decide()
				if out.Lent[protocol.ResourceBatchMemory] != tc.memory || out.Held != unit.Bytes(tc.held) || out.Lent[protocol.ResourceBatchCPU] != 30000 {
					t.Errorf("%s: %v lent, %d held; want batch-memory %d, held %d", when, out.Lent, out.Held, tc.memory, tc.held)
				}
				apply(in.Node, out.Node)
				if got := whole(in.Node.Status.Allocatable, protocol.ResourceBatchMemory); got.V != tc.memory {
					t.Errorf("%s: the node says %d, want %d", when, got.V, tc.memory)
				}
			}
		})
	}
}

// TestBookedZones: the memory of the zones is not raised either, and what one of them never had is given.
func TestBookedZones(t *testing.T) {
	t.Parallel()
	in := marked(t, "24Gi")
	zone := func(name string, had ...topologyv1alpha1.ResourceInfo) topologyv1alpha1.Zone {
		z := topologyv1alpha1.Zone{Name: name, Type: "Node"}
		for _, r := range []string{"cpu", "memory"} {
			q := resources("cpu", "50", "memory", "60G")[corev1.ResourceName(r)]
			z.Resources = append(z.Resources, topologyv1alpha1.ResourceInfo{Name: r, Capacity: q, Allocatable: q, Available: q})
		}
		z.Resources = append(z.Resources, had...)
		return z
	}
	q := resources("m", "12G")["m"]
	had := topologyv1alpha1.ResourceInfo{Name: protocol.ResourceBatchMemory, Capacity: q, Allocatable: q, Available: q}
	in.Topology = &topologyv1alpha1.NodeResourceTopology{Zones: []topologyv1alpha1.Zone{zone("node-1", had), zone("node-0")}}
	got := map[string]int64{}
	zones, _ := in.decide().Zones["zones"].([]topologyv1alpha1.Zone)
	for _, z := range zones {
		for _, r := range z.Resources {
			if r.Name == protocol.ResourceBatchMemory {
				got[z.Name] = r.Allocatable.Value()
			}
		}
	}
	if diff := cmp.Diff(map[string]int64{"node-0": 16.5e9, "node-1": 12e9}, got); diff != "" {
		t.Error(diff)
	}
}

// TestBookedSpellings: of a NodeSLO from before the API server refused two marks one counts, and somebody is told.
func TestBookedSpellings(t *testing.T) {
	t.Parallel()
	in := marked(t, "24Gi")
	yes, eighty, ninety := true, int64(80), int64(90)
	in.SLO = &slov1alpha1.NodeSLO{Spec: slov1alpha1.NodeSLOSpec{Wire: wire.Wire{
		ResourceUsedThresholdWithBE: &wire.ResourceThresholdStrategy{Enable: &yes, MemoryRequestUtilizationPercent: &eighty},
		ResourceThresholdStrategy:   &wire.WireThreshold{Thresholds: &wire.Thresholds{MemoryRequestUtilizationPercent: &ninety}},
	}}}
	out := in.decide()
	const want = "NodeSLO: resourceUsedThresholdWithBE.memoryRequestUtilizationPercent and resourceThresholdStrategy.thresholds.memory-request-utilization-percent differ; " +
		"resourceUsedThresholdWithBE.memoryRequestUtilizationPercent counts"
	if len(out.Problems) != 1 || out.Problems[0] != want || out.Held != 3e9 {
		t.Errorf("%d held, %q", out.Held, out.Problems)
	}
}
