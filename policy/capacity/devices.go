// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Device is one device of a node.
type Device struct {
	// Type is one of protocol.DeviceGPU, DeviceRDMA, DeviceFPGA; another accelerator counts as a GPU.
	Type    string
	Healthy bool
	// ID is the key of the device; empty where nobody has told it.
	ID string
	// Model, empty where nobody has told it.
	Model string
	// Resources that it gives, by name.
	Resources map[string]int64
}

// vendorNvidia is the vendor whose GPUs are sold as koordinator.sh/gpu too; a vendor that nobody has told is taken for it.
const vendorNvidia = "nvidia"

// DeviceResources adds up the healthy devices:
//
//	GPU:   each of its resources; koordinator.sh/gpu = Σ gpu-core where the vendor is nvidia or not told; gpu.shared = 100 × number
//	RDMA:  koordinator.sh/rdma = 100 × number
//	FPGA:  koordinator.sh/fpga = 100 × number
//
// The result names no resource that no device has. Of entries with one ID the first counts, for they are one device.
//
// Example: two GPUs of gpu-core 100 and gpu-memory 16 Gi, a third not healthy: gpu 200, gpu-core 200, gpu-memory 32 Gi.
func DeviceResources(devices []Device, vendor string, shared bool) map[string]int64 {
	out := map[string]int64{}
	gpus := int64(0)
	for i, d := range devices {
		switch {
		case !d.Healthy, again(devices, i):
		case d.Type == protocol.DeviceGPU:
			gpus++
			for name, v := range d.Resources {
				out[name] = unit.Add(out[name], max(v, 0))
			}
		case d.Type == protocol.DeviceRDMA:
			out[protocol.ResourceRDMA] += 100
		case d.Type == protocol.DeviceFPGA:
			out[protocol.ResourceFPGA] += 100
		}
	}
	if gpus == 0 {
		return out
	}
	if vendor == "" || vendor == vendorNvidia {
		out[protocol.ResourceGPU] = out[protocol.ResourceGPUCore]
	}
	if shared {
		out[protocol.ResourceGPUShared] = 100 * gpus
	}
	return out
}

// again tells whether an entry is of a device that one before it is of.
func again(devices []Device, i int) bool {
	return devices[i].ID != "" && slices.ContainsFunc(devices[:i], func(d Device) bool { return d.ID == devices[i].ID })
}

// GPUModel is the model of the node's GPUs, healthy or not: a model is not what fails. It is empty where they differ, or where some tell none;
// told is false where none tells any, and nothing can be said.
//
// Example: two GPUs nvidia-a100, a network card mellanox-ib: nvidia-a100.
func GPUModel(devices []Device) (model string, told bool) {
	var models []string
	for _, d := range devices {
		if d.Type == protocol.DeviceGPU && !slices.Contains(models, d.Model) {
			models = append(models, d.Model)
		}
	}
	switch {
	case len(models) == 0 || len(models) == 1 && models[0] == "":
		return "", false
	case len(models) > 1:
		return "", true
	}
	return models[0], true
}
