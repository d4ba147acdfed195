// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package v1alpha1

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
)

// LabelModel is the device label that deviceModel is.
const LabelModel = "model"

// Canonical gives the devices in canonical spelling:
//
//	deviceType  → type          uuid → id          deviceModel → labels[model]
//	totalMemory → gpu-memory of a GPU, unless 0
//	resources, where none are given: gpu-core 100, gpu-memory-ratio 100; rdma 100; fpga 100
//	minor, where none is given: the lowest number that no device of the type before it, or by its own word, has
//
// Where the spellings differ the canonical one counts and the conflict is listed. The result shares no maps with s.
//
// Example: gpu gpu-uuid-001 and gpu-uuid-002 of 40Gi, no minor: minors 0 and 1, gpu-core 100, gpu-memory-ratio 100 and
// gpu-memory 40Gi each.
func (s *DeviceSpec) Canonical() ([]DeviceInfo, []strategy.Conflict) {
	var conflicts []strategy.Conflict
	taken := map[DeviceType]map[int32]bool{}
	out := make([]DeviceInfo, 0, len(s.Devices))
	for i := range s.Devices {
		info, differ := s.Devices[i].canonical(fmt.Sprintf("spec.devices[%d].", i))
		conflicts = append(conflicts, differ...)
		if taken[info.Type] == nil {
			taken[info.Type] = map[int32]bool{}
		}
		if info.Minor != nil {
			taken[info.Type][*info.Minor] = true
		}
		out = append(out, info)
	}
	for i := range out {
		if out[i].Minor != nil {
			continue
		}
		var free int32
		for taken[out[i].Type][free] {
			free++
		}
		taken[out[i].Type][free] = true
		out[i].Minor = &free
	}
	return out, conflicts
}

// canonical is one device, without a minor that was not given.
func (e *DeviceEntry) canonical(at string) (DeviceInfo, []strategy.Conflict) {
	info := *e.DeviceInfo.DeepCopy()
	var conflicts []strategy.Conflict
	pick := func(canonical, seed, canonicalName, seedName string) string {
		if canonical == "" {
			return seed
		}
		if seed != "" && seed != canonical {
			conflicts = append(conflicts, strategy.Conflict{Canonical: at + canonicalName, Seed: at + seedName})
		}
		return canonical
	}
	info.Type = DeviceType(pick(string(info.Type), string(e.DeviceType), "type", "deviceType"))
	info.UUID = pick(info.UUID, e.DeviceUUID, "id", "uuid")
	if model := pick(info.Labels[LabelModel], e.DeviceModel, "labels.model", "deviceModel"); model != "" {
		if info.Labels == nil {
			info.Labels = map[string]string{}
		}
		info.Labels[LabelModel] = model
	}
	if len(info.Resources) == 0 && e.seedSpelling() {
		info.Resources = whole(info.Type)
	}
	if m := e.TotalMemory; m != nil && info.Type == GPU {
		given, ok := info.Resources[protocol.ResourceGPUMemory]
		switch {
		case ok && given.Cmp(*m) != 0:
			conflicts = append(conflicts, strategy.Conflict{
				Canonical: at + "resources[" + protocol.ResourceGPUMemory + "]", Seed: at + "totalMemory",
			})
		case !ok && m.Sign() > 0:
			info.Resources[protocol.ResourceGPUMemory] = m.DeepCopy()
		}
	}
	return info, conflicts
}

// seedSpelling says that the device was written as in the documents, which name no resources.
func (e *DeviceEntry) seedSpelling() bool {
	return e.DeviceType != "" || e.DeviceUUID != "" || e.DeviceModel != "" || e.TotalMemory != nil
}

// whole is what one whole device of a type gives.
func whole(t DeviceType) corev1.ResourceList {
	all := func(names ...corev1.ResourceName) corev1.ResourceList {
		l := make(corev1.ResourceList, len(names))
		for _, n := range names {
			l[n] = *resource.NewQuantity(100, resource.DecimalSI)
		}
		return l
	}
	switch t {
	case GPU:
		return all(protocol.ResourceGPUCore, protocol.ResourceGPUMemoryRatio)
	case RDMA:
		return all(protocol.ResourceRDMA)
	case FPGA:
		return all(protocol.ResourceFPGA)
	}
	return corev1.ResourceList{}
}
