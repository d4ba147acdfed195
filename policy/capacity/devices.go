// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package capacity

import "github.com/koord-rt/koord-rt/api/protocol"

// Device is one device of a node.
type Device struct {
	// Type is one of protocol.DeviceGPU, DeviceRDMA, DeviceFPGA; another accelerator counts as a GPU.
	Type    string
	Healthy bool
	// Resources that it gives, by name.
	Resources map[string]int64
}

// vendorNvidia is the vendor whose GPUs are sold as koordinator.sh/gpu too; a vendor that nobody has told is taken for it.
const vendorNvidia = "nvidia"

// DeviceResources adds up the healthy devices:
//
//	GPU:   each of its resources; koordinator.sh/gpu = Σ gpu-core where the vendor is nvidia or not told; gpu.shared = 100 × number
//	RDMA:  koordinator.sh/rdma = 100 × number
//
// The result names no resource that no device has.
//
// Example: two GPUs of gpu-core 100 and gpu-memory 16 Gi, a third not healthy: gpu 200, gpu-core 200, gpu-memory 32 Gi.
func DeviceResources(devices []Device, vendor string, shared bool) map[string]int64 {
	out := map[string]int64{}
	gpus := int64(0)
	for _, d := range devices {
		switch {
		case !d.Healthy:
		case d.Type == protocol.DeviceGPU:
			gpus++
			for name, v := range d.Resources {
				out[name] = plus(out[name], max(v, 0))
			}
		case d.Type == protocol.DeviceRDMA:
			out[protocol.ResourceRDMA] += 100
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
