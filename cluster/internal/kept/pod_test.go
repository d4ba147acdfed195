// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kept

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// resources makes a list of pairs of names and quantities.
func resources(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func container(pairs ...string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: resources(pairs...)}}
}

func TestRequestOf(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("cpu", "100m", "memory", "10")
	sidecar.RestartPolicy = &always
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want capacity.Amounts
	}{
		"nothing": {corev1.PodSpec{Containers: []corev1.Container{{}}}, capacity.Amounts{}},
		"the documentation's example": {corev1.PodSpec{
			InitContainers: []corev1.Container{sidecar, container("cpu", "1", "memory", "5")}, Containers: []corev1.Container{container("cpu", "500m", "memory", "50")},
		}, capacity.Amounts{CPU: 1100, Memory: 60}},
		"an init container before the sidecar": {corev1.PodSpec{
			InitContainers: []corev1.Container{container("cpu", "1"), sidecar}, Containers: []corev1.Container{container("cpu", "500m")},
		}, capacity.Amounts{CPU: 1000, Memory: 10}},
		"mid and batch": {corev1.PodSpec{Containers: []corev1.Container{
			container("kubernetes.io/mid-cpu", "2k", "kubernetes.io/mid-memory", "1Gi"), container("kubernetes.io/batch-cpu", "500", "kubernetes.io/batch-memory", "1"),
		}}, capacity.Amounts{CPU: 2500, Memory: 1<<30 + 1}},
		"overhead": {corev1.PodSpec{
			Containers: []corev1.Container{container("cpu", "1")}, Overhead: resources("cpu", "250m", "memory", "120"),
		}, capacity.Amounts{CPU: 1250, Memory: 120}},
		"the pod's own": {corev1.PodSpec{
			Containers: []corev1.Container{container("cpu", "1", "memory", "7")}, Resources: &corev1.ResourceRequirements{Requests: resources("cpu", "3")},
		}, capacity.Amounts{CPU: 3000, Memory: 7}},
		"more than there can be": {corev1.PodSpec{Containers: []corev1.Container{
			container("cpu", "9E", "memory", "10E"), container("cpu", "1", "kubernetes.io/mid-memory", "1"),
		}}, capacity.Amounts{CPU: math.MaxInt64, Memory: math.MaxInt64}},
		"less than nothing": {corev1.PodSpec{Containers: []corev1.Container{container("cpu", "-1", "memory", "-1")}}, capacity.Amounts{}},
	} {
		if got := requestOf(&corev1.Pod{Spec: tc.spec}); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestClassOf(t *testing.T) {
	t.Parallel()
	priority := func(v int32) *int32 { return &v }
	for name, tc := range map[string]struct {
		labels   map[string]string
		priority *int32
		kube     corev1.PodQOSClass
		want     protocol.PriorityClass
	}{
		"best effort":                     {nil, nil, corev1.PodQOSBestEffort, protocol.PriorityBatch},
		"burstable":                       {nil, priority(0), corev1.PodQOSBurstable, protocol.PriorityProd},
		"labelled BE":                     {map[string]string{protocol.LabelQoSClass: "BE"}, nil, corev1.PodQOSBurstable, protocol.PriorityBatch},
		"its band":                        {map[string]string{protocol.LabelQoSClass: "BE"}, priority(7000), corev1.PodQOSBestEffort, protocol.PriorityMid},
		"its label before its band":       {map[string]string{protocol.LabelPriorityClass: "koord-free"}, priority(9500), corev1.PodQOSBurstable, protocol.PriorityFree},
		"the documents' high-priority":    {nil, priority(100000), corev1.PodQOSBestEffort, protocol.PriorityProd},
		"between the bands, best effort":  {nil, priority(8500), corev1.PodQOSBestEffort, protocol.PriorityBatch},
		"a QoS class that is none at all": {map[string]string{protocol.LabelQoSClass: "XX"}, nil, corev1.PodQOSGuaranteed, protocol.PriorityProd},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}, Spec: corev1.PodSpec{Priority: tc.priority}, Status: corev1.PodStatus{QOSClass: tc.kube}}
		if got := PodOf(p, false).Value.Class; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
