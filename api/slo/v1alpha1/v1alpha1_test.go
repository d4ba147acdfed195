// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/apitest"
	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// read reads a file of api/slo; status is in the documents' spelling of amounts, which is not the shortest.
func read[T any](t *testing.T, file string) *T {
	t.Helper()
	return apitest.Same[T](t, "../testdata/"+file, "apiVersion", "kind", "spec")
}

func TestNodeSLO(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"m05-nodeslo.yaml", "m06a-nodeslo-memory-tuning.yaml"} {
		o := read[v1alpha1.NodeSLO](t, file)
		spec, conflicts := o.Spec.Canonical()
		if len(conflicts) != 0 || spec.ResourceQOSStrategy.BEClass == nil {
			t.Fatalf("%s: %v %+v", file, conflicts, spec)
		}
		canonical := v1alpha1.NodeSLOSpecOf(spec)
		if canonical.ResourceThresholdStrategy != nil {
			t.Errorf("%s: the documents' spelling is written", file)
		}
		again, conflicts := canonical.Canonical()
		if d := cmp.Diff(spec, again); d != "" || len(conflicts) != 0 {
			t.Errorf("%s: written and read again: %s %v", file, d, conflicts)
		}
		apitest.Copied(t, o)
	}
	o := read[v1alpha1.NodeSLO](t, "m05-nodeslo.yaml")
	if o.Status.NodeMetric.UpdateTime.UTC() != time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC) {
		t.Errorf("status: %+v", o.Status)
	}
	o.Spec.ResourceUsedThresholdWithBE = &strategy.ResourceThresholdStrategy{CPUSuppressThresholdPercent: new(int64)}
	spec, conflicts := o.Spec.Canonical()
	if len(conflicts) != 1 || *spec.ResourceUsedThresholdWithBE.CPUSuppressThresholdPercent != 0 {
		t.Errorf("both spellings: %v, %d", conflicts, *spec.ResourceUsedThresholdWithBE.CPUSuppressThresholdPercent)
	}
}

func TestNodeMetricSpec(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]func(*slo.Collect){
		"m07-nodemetric.yaml":      func(c *slo.Collect) { c.Containers = true },
		"nodemetric-upstream.yaml": func(c *slo.Collect) { c.Memory = slo.MemoryWithPageCache },
	} {
		c := slo.DefaultCollect()
		want(&c)
		if d := cmp.Diff(c, read[v1alpha1.NodeMetric](t, file).Spec.Canonical()); d != "" {
			t.Errorf("%s: %s", file, d)
		}
	}
}

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// TestNodeMetricStatus: the printed object, in the documents' spelling only, reads as Koordinator's.
func TestNodeMetricStatus(t *testing.T) {
	t.Parallel()
	in := read[v1alpha1.NodeMetric](t, "m07-nodemetric.yaml").Status
	kept := in.DeepCopy()
	got, conflicts := in.Canonical()
	if len(conflicts) != 0 {
		t.Error(conflicts)
	}
	if d := cmp.Diff(kept, &in); d != "" {
		t.Errorf("the object itself was changed: %s", d)
	}
	if d := cmp.Diff(amounts("64", "64Gi"), got.NodeMetric.NodeUsage.Resources); d != "" {
		t.Errorf("node usage: %s", d)
	}
	if d := cmp.Diff(amounts("0", "0"), got.NodeMetric.SystemUsage.Resources); d != "" { // 64 = 20 + 44
		t.Errorf("system usage: %s", d)
	}
	want := []v1alpha1.PodMetric{{Name: "web-server-1", Namespace: "default", PodUsage: v1alpha1.ResourceMap{Resources: amounts("2", "2Gi")}}}
	if d := cmp.Diff(want, got.PodsMetric); d != "" {
		t.Errorf("pods: %s", d)
	}
	again, conflicts := got.Canonical()
	if d := cmp.Diff(got, again); d != "" || len(conflicts) != 0 {
		t.Errorf("not the same when done twice: %s %v", d, conflicts)
	}
}

func TestNodeMetricStatusOfBoth(t *testing.T) {
	t.Parallel()
	in := v1alpha1.NodeMetricStatus{
		NodeMetric: &v1alpha1.NodeMetricInfo{
			NodeUsage: v1alpha1.ResourceMap{Resources: amounts("64", "64Gi")}, Usage: amounts("64000m", "65536Mi"),
		},
		PodsMetric: []v1alpha1.PodMetric{{Name: "a", Namespace: "n", QoS: "LS", PodUsage: v1alpha1.ResourceMap{Resources: amounts("3", "1Gi")}}},
		PodMetrics: []v1alpha1.PodContainers{
			{PodRef: v1alpha1.PodRef{Namespace: "n", Name: "a"}, Containers: []v1alpha1.ContainerMetric{{Name: "x", Usage: amounts("9", "9Gi")}}},
			{PodRef: v1alpha1.PodRef{Namespace: "n", Name: "b"}, Containers: []v1alpha1.ContainerMetric{
				{Name: "x", Usage: amounts("1", "1Gi")}, {Name: "y", Usage: amounts("500m", "1Gi")},
			}},
		},
	}
	got, conflicts := in.Canonical()
	if len(conflicts) != 0 {
		t.Errorf("equal by value: %v", conflicts)
	}
	if d := cmp.Diff(append(in.PodsMetric, v1alpha1.PodMetric{
		Name: "b", Namespace: "n", PodUsage: v1alpha1.ResourceMap{Resources: amounts("1500m", "2Gi")},
	}), got.PodsMetric); d != "" {
		t.Error(d)
	}
	in.NodeMetric.Usage = amounts("63", "64Gi")
	got, conflicts = in.Canonical()
	if d := cmp.Diff(amounts("64", "64Gi"), got.NodeMetric.NodeUsage.Resources); d != "" || len(conflicts) != 1 {
		t.Errorf("they differ: %v %s", conflicts, d)
	}
	in.NodeMetric.NodeUsage = v1alpha1.ResourceMap{}
	in.BEMetric, in.LSMetric = &v1alpha1.ClassMetric{Usage: amounts("20", "70Gi")}, &v1alpha1.ClassMetric{Usage: amounts("30", "1Gi")}
	in.HostApplicationMetric = []v1alpha1.HostApplicationMetric{{Name: "h", Usage: v1alpha1.ResourceMap{Resources: amounts("3", "1Gi")}}}
	if got, _ = in.Canonical(); cmp.Diff(amounts("10", "0"), got.NodeMetric.SystemUsage.Resources) != "" { // 63 − 20 − 30 − 3; 64 − 72
		t.Errorf("system usage: %v", got.NodeMetric.SystemUsage.Resources)
	}
}

func TestScheme(t *testing.T) {
	t.Parallel()
	apitest.Scheme(t, v1alpha1.AddToScheme, v1alpha1.GroupVersion, slo.KindNodeSLO, slo.KindNodeMetric)
}
