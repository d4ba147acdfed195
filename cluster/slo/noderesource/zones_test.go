// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	topologyv1alpha1 "github.com/koord-rt/koord-rt/api/topology/v1alpha1"
)

func zone(name string, more ...topologyv1alpha1.ResourceInfo) topologyv1alpha1.Zone {
	return topologyv1alpha1.Zone{Name: name, Type: "Node", Resources: append([]topologyv1alpha1.ResourceInfo{info("cpu", "50"), info("memory", "60G")}, more...)}
}

func info(name, amount string) topologyv1alpha1.ResourceInfo {
	q := resource.MustParse(amount)
	return topologyv1alpha1.ResourceInfo{Name: name, Capacity: q, Allocatable: q, Available: q}
}

// zonesText are resources of zones as "zone: name amount, …".
func zonesText(patch map[string]any) (out []string) {
	zones, _ := patch["zones"].([]topologyv1alpha1.Zone)
	for _, z := range zones {
		var list []string
		for _, r := range z.Resources {
			list = append(list, r.Name+" "+r.Allocatable.String())
		}
		out = append(out, z.Name+": "+strings.Join(list, ", "))
	}
	return out
}

func TestZones(t *testing.T) {
	t.Parallel()
	const cpu, memory = protocol.ResourceBatchCPU, protocol.ResourceBatchMemory
	plain := []string{"node-0: cpu 50, kubernetes.io/batch-cpu 12500, kubernetes.io/batch-memory 16500M, memory 60G",
		"node-1: cpu 50, kubernetes.io/batch-cpu 12500, kubernetes.io/batch-memory 16500M, memory 60G"}
	for name, tc := range map[string]struct {
		zones  []topologyv1alpha1.Zone
		change func(*testing.T, *scene)
		want   []string
	}{
		"added": {[]topologyv1alpha1.Zone{zone("node-0"), zone("node-1")}, nil, plain},
		"there already": {[]topologyv1alpha1.Zone{
			zone("node-0", info(cpu, "12500"), info(memory, "16500M")), zone("node-1", info(memory, "16500M"), info(cpu, "12500")),
		}, nil, nil},
		"a pod in one of them": {[]topologyv1alpha1.Zone{zone("node-1"), zone("node-0")}, func(_ *testing.T, in *scene) {
			in.Pods[0].Annotations = map[string]string{protocol.AnnotationResourceStatus: `{"numaNodeResources":[{"node":1}]}`}
		}, []string{"node-1: cpu 50, kubernetes.io/batch-cpu 7k, kubernetes.io/batch-memory 11G, memory 60G",
			"node-0: cpu 50, kubernetes.io/batch-cpu 18k, kubernetes.io/batch-memory 22G, memory 60G"}},
		"taken away, and what others say stays": {[]topologyv1alpha1.Zone{
			zone("node-0", info(memory, "16500M"), info(cpu, "12500"), info("example.com/x", "1")), zone("node-1", info(cpu, "0")),
		}, func(t *testing.T, in *scene) { in.Config = strategy(t, nil) },
			[]string{"node-0: cpu 50, memory 60G, example.com/x 1", "node-1: cpu 50, memory 60G"}},
		"more than a kernel has":     {slices.Repeat([]topologyv1alpha1.Zone{zone("node-0")}, maxZones+1), nil, nil},
		"one that tells nothing yet": {[]topologyv1alpha1.Zone{zone("node-0"), {Name: "node-1", Type: "Node"}}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := example(t)
			in.Topology = &topologyv1alpha1.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}, Zones: tc.zones}
			if tc.change != nil {
				tc.change(t, in)
			}
			before := text(t, map[string]any{"zones": in.Topology.Zones})
			out := in.decide()
			if diff := cmp.Diff(tc.want, zonesText(out.Zones)); diff != "" {
				t.Error(diff)
			}
			if after := text(t, map[string]any{"zones": in.Topology.Zones}); after != before {
				t.Errorf("what is in the cache was changed: %s", after)
			}
			if out.Zones == nil {
				return
			}
			if v := out.Zones["metadata"].(map[string]any)["resourceVersion"]; v != "7" {
				t.Errorf("the patch holds for version %v", v)
			}
			in.Topology.Zones = out.Zones["zones"].([]topologyv1alpha1.Zone)
			if again := in.decide(); again.Zones != nil {
				t.Errorf("and then once more: %v", zonesText(again.Zones))
			}
		})
	}
}
