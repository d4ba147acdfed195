// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/koord-rt/koord-rt/api/protocol"
	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/internal/kept"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// devices are the resources and labels of the node's devices; without a Device object those that are ours go.
func (d *decision) devices() {
	for _, name := range ofDevices {
		// A resource of another domain may be a device plugin's: it is ours only where there is a Device that we count.
		if d.in.Device != nil || strings.HasPrefix(name, protocol.DomainKoordinator) {
			d.resources[name] = unit.Opt{}
		}
	}
	if d.in.Device == nil {
		return
	}
	all, conflicts := d.in.Device.Spec.Canonical()
	for _, c := range conflicts {
		d.problem("Device: " + c.Canonical + " and " + c.Seed + " differ; " + c.Canonical + " counts")
	}
	devices, labels := devicesOf(all), d.in.Device.Labels
	seen := map[string]bool{}
	for i := range devices { // one that was stored before the definition had its rule
		if id := devices[i].ID; id != "" && seen[id] {
			d.problem("Device: spec.devices[" + strconv.Itoa(i) + "] has the id of one before it, " + strconv.Quote(id) + "; the first counts")
		}
		seen[devices[i].ID] = true
	}
	if labels[protocol.LabelGPUModel] == "" {
		d.gpuModel(devices)
	}
	for _, key := range []string{protocol.LabelGPUVendor, protocol.LabelGPUModel, protocol.LabelGPUDriverVersion} {
		if v := labels[key]; v != "" {
			d.label[key] = v
		}
	}
	for name, v := range capacity.DeviceResources(devices, labels[protocol.LabelGPUVendor], d.in.SharedGPU) {
		if slices.Contains(ofDevices, name) {
			d.resources[name] = unit.Some(v)
		}
	}
}

// gpuModel is the label of the model that the node's GPUs agree on. Where they differ the node has none, for pods that ask for a model get
// any of its GPUs; where they tell none, what another has written stays.
func (d *decision) gpuModel(devices []capacity.Device) {
	model, told := capacity.GPUModel(devices)
	if errs := validation.IsValidLabelValue(model); len(errs) > 0 {
		d.problem("Device: model " + strconv.Quote(model) + " cannot be the label " + protocol.LabelGPUModel + ": " + strings.Join(errs, "; "))
		return
	}
	if told {
		d.label[protocol.LabelGPUModel] = model
	}
}

func devicesOf(list []schedulingv1alpha1.DeviceInfo) []capacity.Device {
	out := make([]capacity.Device, 0, len(list))
	for i := range list {
		one := capacity.Device{Type: string(list[i].Type), Healthy: list[i].Health, ID: list[i].UUID, Model: list[i].Labels[schedulingv1alpha1.LabelModel], Resources: map[string]int64{}}
		if t := list[i].Type; t == schedulingv1alpha1.XPU || t == schedulingv1alpha1.NPU {
			one.Type = protocol.DeviceGPU
		}
		for name, q := range list[i].Resources {
			one.Resources[string(name)] = kept.Count(q)
		}
		out = append(out, one)
	}
	return out
}
