// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/apitest"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
)

// amounts is a list from name=quantity pairs.
func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, p := range pairs {
		name, q, _ := strings.Cut(p, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

// TestDeviceOfTheDocuments: M14 in canonical spelling.
func TestDeviceOfTheDocuments(t *testing.T) {
	t.Parallel()
	o := apitest.Read[v1alpha1.Device](t, "testdata/m14-device.yaml")
	kept := o.DeepCopy()
	got, conflicts := o.Spec.Canonical()
	if len(conflicts) != 0 {
		t.Error(conflicts)
	}
	device := func(kind v1alpha1.DeviceType, minor int32, model, id string, pairs ...string) v1alpha1.DeviceInfo {
		return v1alpha1.DeviceInfo{
			Type: kind, UUID: id, Minor: &minor, Health: true, Resources: amounts(pairs...), Labels: map[string]string{"model": model},
		}
	}
	gpu := []string{protocol.ResourceGPUCore + "=100", protocol.ResourceGPUMemoryRatio + "=100", protocol.ResourceGPUMemory + "=40Gi"}
	want := []v1alpha1.DeviceInfo{
		device(v1alpha1.GPU, 0, "nvidia-a100", "gpu-uuid-001", gpu...),
		device(v1alpha1.GPU, 1, "nvidia-a100", "gpu-uuid-002", gpu...),
		device(v1alpha1.RDMA, 0, "mellanox-ib", "rdma-uuid-001", protocol.ResourceRDMA+"=100"),
		device(v1alpha1.FPGA, 0, "xilinx-u250", "fpga-uuid-001", protocol.ResourceFPGA+"=100"),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(kept, o); d != "" {
		t.Errorf("the object itself was changed: %s", d)
	}
	apitest.Copied(t, o)
	if a := o.Status.DeviceAllocations; len(a) != 2 || a[0].Allocations[0].Allocated != "50%" || a[1].Device.UUID != "gpu-uuid-002" {
		t.Errorf("status: %+v", o.Status)
	}
}

func TestDeviceSpellings(t *testing.T) {
	t.Parallel()
	one, minor, next := resource.MustParse("1Gi"), int32(0), int32(1)
	for name, c := range map[string]struct {
		in        []v1alpha1.DeviceEntry
		want      v1alpha1.DeviceInfo // the last device
		conflicts string
	}{
		"canonical stays": {
			in:   []v1alpha1.DeviceEntry{{DeviceInfo: v1alpha1.DeviceInfo{Type: v1alpha1.GPU, UUID: "a", Minor: &minor, Resources: amounts("x=1")}}},
			want: v1alpha1.DeviceInfo{Type: v1alpha1.GPU, UUID: "a", Minor: &minor, Resources: amounts("x=1")},
		},
		"upstream's without resources gives none": {
			in:   []v1alpha1.DeviceEntry{{DeviceInfo: v1alpha1.DeviceInfo{Type: v1alpha1.GPU, UUID: "a", Minor: &minor}}},
			want: v1alpha1.DeviceInfo{Type: v1alpha1.GPU, UUID: "a", Minor: &minor},
		},
		"the canonical spelling counts": {
			in: []v1alpha1.DeviceEntry{{
				DeviceInfo: v1alpha1.DeviceInfo{
					Type: v1alpha1.GPU, UUID: "a", Minor: &minor, Labels: map[string]string{"model": "m"},
					Resources: amounts(protocol.ResourceGPUMemory + "=2Gi"),
				},
				DeviceType: v1alpha1.RDMA, DeviceUUID: "b", DeviceModel: "n", TotalMemory: &one,
			}},
			want: v1alpha1.DeviceInfo{
				Type: v1alpha1.GPU, UUID: "a", Minor: &minor, Labels: map[string]string{"model": "m"}, Resources: amounts(protocol.ResourceGPUMemory + "=2Gi"),
			},
			conflicts: "spec.devices[0].type spec.devices[0].id spec.devices[0].labels.model spec.devices[0].resources[koordinator.sh/gpu-memory]",
		},
		"equal by value": {
			in: []v1alpha1.DeviceEntry{{
				DeviceInfo:  v1alpha1.DeviceInfo{Type: v1alpha1.GPU, Minor: &minor, Resources: amounts(protocol.ResourceGPUMemory + "=1024Mi")},
				DeviceType:  v1alpha1.GPU,
				TotalMemory: &one,
			}},
			want: v1alpha1.DeviceInfo{Type: v1alpha1.GPU, Minor: &minor, Resources: amounts(protocol.ResourceGPUMemory + "=1024Mi")},
		},
		"a minor that another has": {
			in: []v1alpha1.DeviceEntry{
				{DeviceInfo: v1alpha1.DeviceInfo{Type: v1alpha1.FPGA, Minor: &minor}}, {DeviceInfo: v1alpha1.DeviceInfo{Type: v1alpha1.FPGA}},
			},
			want: v1alpha1.DeviceInfo{Type: v1alpha1.FPGA, Minor: &next},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, conflicts := (&v1alpha1.DeviceSpec{Devices: c.in}).Canonical()
			if d := cmp.Diff(c.want, got[len(got)-1]); d != "" {
				t.Error(d)
			}
			var names []string
			for _, c := range conflicts {
				names = append(names, c.Canonical)
			}
			if strings.Join(names, " ") != c.conflicts {
				t.Errorf("conflicts %v, want %s", names, c.conflicts)
			}
		})
	}
}

func TestReservations(t *testing.T) {
	t.Parallel()
	spark := apitest.Read[v1alpha1.Reservation](t, "testdata/m08-reservation-spark.yaml")
	flink := apitest.Read[v1alpha1.Reservation](t, "testdata/m09-reservation-flink.yaml")
	cpu := spark.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu()
	if spark.Spec.TTL.Duration != 10*time.Minute || !spark.Spec.PreAllocation || !*spark.Spec.AllocateOnce || cpu.Value() != 8 ||
		spark.Spec.Owners[0].LabelSelector.MatchLabels["job-id"] != "spark-123" || spark.Status.Phase != v1alpha1.ReservationAvailable ||
		len(spark.Status.CurrentOwners) != 2 || spark.Status.Allocated.Cpu().Value() != 8 {
		t.Errorf("%+v", spark)
	}
	if flink.Spec.TTL.Duration != 2*time.Hour || *flink.Spec.AllocateOnce {
		t.Errorf("%+v", flink)
	}
}

func TestScheme(t *testing.T) {
	t.Parallel()
	apitest.Scheme(t, v1alpha1.AddToScheme, v1alpha1.GroupVersion,
		"Reservation", "Device", "PodMigrationJob", "ClusterNetworkTopology", "ScheduleExplanation")
}
