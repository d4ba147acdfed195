// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/koord-rt/koord-rt/api/apitest"
	"github.com/koord-rt/koord-rt/api/protocol"
	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
)

func TestDevices(t *testing.T) {
	t.Parallel()
	gpu := func(healthy bool) schedulingv1alpha1.DeviceEntry {
		return schedulingv1alpha1.DeviceEntry{DeviceInfo: schedulingv1alpha1.DeviceInfo{
			Type: schedulingv1alpha1.GPU, Health: healthy, Resources: resources(protocol.ResourceGPUCore, "100", protocol.ResourceGPUMemory, "16Gi"),
		}}
	}
	in := example(t)
	in.Config = strategy(t, nil)
	in.Node.Status.Allocatable["huawei.com/npu-core"] = resource.MustParse("3")
	in.Node.Status.Capacity["huawei.com/npu-core"] = resource.MustParse("3")
	in.Device = &schedulingv1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		protocol.LabelGPUModel: "A100", "mine": "not yours",
	}}, Spec: schedulingv1alpha1.DeviceSpec{Devices: []schedulingv1alpha1.DeviceEntry{gpu(true), gpu(true), gpu(false)}}}
	step := func(name, want string) {
		t.Helper()
		out := in.decide()
		if diff := cmp.Diff(want, text(t, out.Node)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		apply(in.Node, out.Node)
	}
	step("two", `{"metadata":{"labels":{"node.koordinator.sh/gpu-model":"A100"}},`+
		both(`{"huawei.com/npu-core":null,"koordinator.sh/gpu":"200","koordinator.sh/gpu-core":"200","koordinator.sh/gpu-memory":"34359738368"}`)+"}")
	step("the same", "")
	in.Since, in.Device.Spec.Devices[0].Health = 0, false
	step("one fails", "{"+both(`{"koordinator.sh/gpu":"100","koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"17179869184"}`)+"}")
	in.Device = nil
	in.Node.Status.Allocatable["huawei.com/npu-core"], in.Node.Status.Capacity["huawei.com/npu-core"] = resource.MustParse("3"), resource.MustParse("3")
	step("no Device: a device plugin's own stays", "{"+both(`{"koordinator.sh/gpu":null,"koordinator.sh/gpu-core":null,"koordinator.sh/gpu-memory":null}`)+"}")
}

// devicesOn is a node with the Device of the documents (M14), and what is written of it when its devices change.
func devicesOn(t *testing.T) (*scene, func(name, want string)) {
	t.Helper()
	in := example(t)
	in.Config = strategy(t, nil)
	in.Device = apitest.Read[schedulingv1alpha1.Device](t, "../../../api/scheduling/v1alpha1/testdata/m14-device.yaml")
	return in, func(name, want string) {
		t.Helper()
		out := in.decide()
		if diff := cmp.Diff(want, text(t, out.Node)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		apply(in.Node, out.Node)
		in.Since = 0
		if len(out.Problems) > 0 {
			t.Errorf("%s: %q", name, out.Problems)
		}
	}
}

// TestDeviceOfTheDocuments: M14 gives its node what all its healthy devices have, and the GPUs' model.
func TestDeviceOfTheDocuments(t *testing.T) {
	t.Parallel()
	in, step := devicesOn(t)
	step("M14", `{"metadata":{"labels":{"node.koordinator.sh/gpu-model":"nvidia-a100"}},`+both(`{"koordinator.sh/fpga":"100","koordinator.sh/gpu":"200",`+
		`"koordinator.sh/gpu-core":"200","koordinator.sh/gpu-memory":"85899345920","koordinator.sh/gpu-memory-ratio":"200","koordinator.sh/rdma":"100"}`)+"}")
	step("the same", "")
	devices := in.Device.Spec.Devices
	devices[3].Health = false
	step("the FPGA fails", "{"+both(`{"koordinator.sh/fpga":null}`)+"}")
	devices[1].Health = false
	step("a GPU fails", "{"+both(`{"koordinator.sh/gpu":"100","koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"42949672960",`+
		`"koordinator.sh/gpu-memory-ratio":"100"}`)+"}")
	in.Device = nil
	step("no Device", "{"+both(`{"koordinator.sh/gpu":null,"koordinator.sh/gpu-core":null,"koordinator.sh/gpu-memory":null,`+
		`"koordinator.sh/gpu-memory-ratio":null,"koordinator.sh/rdma":null}`)+"}")
}

// TestDeviceTwice: an object from before the definition forbade it gives its node no more than there is, and somebody is told.
func TestDeviceTwice(t *testing.T) {
	t.Parallel()
	in, _ := devicesOn(t)
	apply(in.Node, in.decide().Node)
	in.Since = 0
	devices := in.Device.Spec.Devices
	in.Device.Spec.Devices = append(devices, devices[0])
	out := in.decide()
	want := []string{`Device: spec.devices[4] has the id of one before it, "gpu-uuid-001"; the first counts`}
	if diff := cmp.Diff(want, out.Problems); out.Node != nil || diff != "" {
		t.Errorf("%s, %s", text(t, out.Node), diff)
	}
}

// TestGPUModel: the label says what holds for every GPU of the node, and the Device's own label comes first.
func TestGPUModel(t *testing.T) {
	t.Parallel()
	const label = `{"metadata":{"labels":{"node.koordinator.sh/gpu-model":`
	in, step := devicesOn(t)
	apply(in.Node, in.decide().Node)
	in.Since = 0
	devices := in.Device.Spec.Devices
	devices[1].DeviceModel = "nvidia-h100"
	step("differ", label+"null}}}")
	devices[0].DeviceModel = "nvidia-h100"
	step("agree again", label+`"nvidia-h100"}}}`)
	in.Device.Labels = map[string]string{protocol.LabelGPUModel: "H100"}
	step("the Device's own label", label+`"H100"}}}`)
	in.Device.Labels, devices[0].DeviceModel, devices[1].DeviceModel = nil, "", ""
	step("none tells", "")
	devices[0].DeviceModel, devices[1].DeviceModel = "NVIDIA A100", "NVIDIA A100"
	out := in.decide()
	if out.Node != nil || len(out.Problems) != 1 || !strings.Contains(out.Problems[0], `"NVIDIA A100" cannot be the label node.koordinator.sh/gpu-model`) {
		t.Errorf("no label's value: %v, %q", out.Node, out.Problems)
	}
}
