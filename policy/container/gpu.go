// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/draft"
)

// Names outside our control: NVIDIA's container toolkit and MPS, HAMi-core.
const (
	cdiGPU           = "nvidia.com/gpu="
	envVisible       = "NVIDIA_VISIBLE_DEVICES"
	envMemoryLimit   = "CUDA_DEVICE_MEMORY_LIMIT"
	envCoreLimit     = "CUDA_DEVICE_SM_LIMIT"
	envPreload       = "LD_PRELOAD"
	envMPSMemory     = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
	envMPSThreads    = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	hamiLock         = "/tmp/vgpulock"
	visibleNone      = "void"
	whyAllocated     = "device-allocated"
	problemTellApart = "cannot tell which container asked for GPUs"
)

// gpu plans the GPUs of this container, and "void" for the other containers of the pod, whose images may ask for all.
//
// Whole devices are dealt out in the order of the containers' names; shared ones go to every container that asks, with
// memory and core limits in proportion to its request. A device is given by CDI when the runtime applies it and the name
// is in the registry for each, else by its nodes and NVIDIA_VISIBLE_DEVICES.
func (j *job) gpu(gpus []protocol.DeviceAllocation) {
	pt := j.partOf(gpuNames)
	if !pt.asks {
		j.env(envVisible, visibleNone, "the pod's GPUs belong to other containers")
		return
	}
	if pt.guessed {
		j.guessed(&pt)
	}
	mine, whole := deal(gpus, &pt)
	ids := make([]string, len(mine))
	byUUID := true
	for i := range mine {
		ids[i] = j.uuid(&mine[i])
		byUUID = byUUID && ids[i] != ""
	}
	if other := j.foreignCDI(ids); other != "" {
		j.Problem(protocol.AnnotationDeviceAllocated, "another source already gave the CDI device "+draft.Clip(other)+": GPUs are left to it")
		return
	}
	if byUUID && j.cdi(ids) {
		j.env(envVisible, visibleNone, "given by CDI")
	} else {
		j.gpuNodes(mine, ids, byUUID)
	}
	if !whole {
		j.gpuLimits(mine, &pt)
	}
}

func (j *job) guessed(pt *part) {
	if pt.total == 1 {
		j.Problem(protocol.AnnotationDeviceAllocated, problemTellApart+": the pod is not in the node agent's cache, the container is taken for the only one")
		return
	}
	j.Problem(protocol.AnnotationDeviceAllocated, problemTellApart+": no container requests one, each gets an equal part")
}

// deal returns the container's allocations, and whether they are its own as a whole. Requests that are whole devices and
// add up to the allocation are dealt out; otherwise all devices are shared.
func deal(gpus []protocol.DeviceAllocation, pt *part) (mine []protocol.DeviceAllocation, whole bool) {
	unit := int64(100)
	if pt.resource == protocol.ResourceNvidiaGPU || pt.resource == protocol.ResourceAMDGPU || pt.resource == protocol.ResourceDCU {
		unit = 1
	}
	n := int64(len(gpus))
	if pt.resource != "" && pt.resource != protocol.ResourceGPUMemory && pt.resource != protocol.ResourceGPUShared &&
		pt.total == n*unit && pt.own%unit == 0 && pt.before%unit == 0 {
		return gpus[pt.before/unit : (pt.before+pt.own)/unit], true
	}
	return gpus, pt.own == pt.total && !shared(gpus)
}

// shared reports whether a device was given in part only.
func shared(gpus []protocol.DeviceAllocation) bool {
	for i := range gpus {
		r := gpus[i].Resources
		if ratio, ok := r[protocol.ResourceGPUMemoryRatio]; ok && ratio < 100 {
			return true
		}
		if core, ok := r[protocol.ResourceGPUCore]; ok && core < 100 {
			return true
		}
	}
	return false
}

// uuid is the allocation's, else that of the node's device with the same minor; "" when unknown.
func (j *job) uuid(a *protocol.DeviceAllocation) string {
	if a.ID != "" {
		return a.ID
	}
	if n := j.node(protocol.DeviceGPU, a); n != nil {
		return n.UUID
	}
	return ""
}

// node finds a device by UUID or PCI address (RDMA), else by minor.
func (j *job) node(kind string, a *protocol.DeviceAllocation) *node.DeviceNode {
	var byMinor *node.DeviceNode
	nodes := j.View.Kernel.Devices
	for i := range nodes {
		n := &nodes[i]
		if n.Type != kind || n.Control {
			continue
		}
		if a.ID != "" && (n.UUID == a.ID || strings.EqualFold(n.BusID, a.ID)) {
			return n
		}
		if n.Minor == int(a.Minor) && byMinor == nil && (a.ID == "" || n.UUID == "") {
			byMinor = n
		}
	}
	return byMinor
}

// foreignCDI is a GPU that somebody else requested and we would not.
func (j *job) foreignCDI(ids []string) string {
	for _, name := range j.c.CDIDevices {
		id, gpu := strings.CutPrefix(name, cdiGPU)
		if gpu && !has(ids, id) {
			return name
		}
	}
	return ""
}

func has(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// cdi plans CDI devices when every name can be resolved and the knob is ours.
func (j *job) cdi(ids []string) bool {
	if !j.View.Runtime.Fields.CDI || !j.Takes(protocol.FeatureDevices, plan.CDIDevice) {
		return false
	}
	for _, id := range ids {
		if _, ok := j.View.Kernel.CDI[cdiGPU+id]; !ok {
			return false
		}
	}
	for _, id := range ids {
		name := cdiGPU + id
		// The same name from two plugins fails the container.
		if !has(j.c.CDIDevices, name) {
			j.SetKey(protocol.FeatureDevices, plan.CDIDevice, name, plan.Text(name), whyAllocated)
		}
	}
	return true
}

// gpuNodes plans device nodes and NVIDIA_VISIBLE_DEVICES: UUIDs, or minors where a UUID is unknown.
func (j *job) gpuNodes(mine []protocol.DeviceAllocation, ids []string, byUUID bool) {
	found := false
	visible := make([]string, len(mine))
	for i := range mine {
		a := &mine[i]
		visible[i] = strconv.Itoa(int(a.Minor))
		if byUUID {
			visible[i] = ids[i]
		}
		n := j.node(protocol.DeviceGPU, a)
		if n == nil {
			j.Problem(protocol.AnnotationDeviceAllocated, "this node has no GPU with minor "+strconv.Itoa(int(a.Minor))+" or its UUID")
			continue
		}
		found = true
		j.addNode(n, whyAllocated)
	}
	if found {
		j.addControls(protocol.DeviceGPU)
	}
	j.env(envVisible, strings.Join(visible, ","), whyAllocated)
}

// gpuLimits plans memory and core limits for the isolation that the pod's label names.
func (j *job) gpuLimits(mine []protocol.DeviceAllocation, pt *part) {
	switch provider := j.Pod.Ask.GPUIsolationProvider; {
	case provider == protocol.GPUIsolationHAMi:
		j.hami(&mine[0], pt)
	case provider == protocol.GPUIsolationMPS:
		j.mps(mine, pt)
	}
}

// hami plans HAMi-core's limits per device: bytes and percent of the multiprocessors, with its library when the node has
// it. Example: gpu-memory 16 GiB, gpu-core 50, half of the pod's request: 8589934592 and 25.
func (j *job) hami(a *protocol.DeviceAllocation, pt *part) {
	lib := j.View.Kernel.HAMiLib
	if lib == "" {
		j.Problem(protocol.LabelGPUIsolationProvider, "HAMi-core's library is not installed on this node: limits are not enforced")
	}
	if n := pt.of(a.Resources[protocol.ResourceGPUMemory]); n > 0 {
		j.env(envMemoryLimit, itoa(n), "gpu-memory of this container")
	}
	if n := pt.of(a.Resources[protocol.ResourceGPUCore]); n > 0 {
		j.env(envCoreLimit, itoa(n), "gpu-core of this container")
	}
	if lib == "" {
		return
	}
	if j.hasEnv(envPreload) {
		j.Problem(protocol.LabelGPUIsolationProvider, "the container sets LD_PRELOAD itself: HAMi-core is not loaded")
		return
	}
	j.env(envPreload, lib, "HAMi-core")
	j.SetKey(protocol.FeatureDevices, plan.Mount, lib, plan.Text(lib+" rbind,ro"), "HAMi-core")
	j.SetKey(protocol.FeatureDevices, plan.Mount, hamiLock, plan.Text(hamiLock+" rbind,rw"), "HAMi-core")
}

// mps plans MPS's limits: pinned memory per device in MiB and active threads in percent. Example: "0=8192M", 25.
func (j *job) mps(mine []protocol.DeviceAllocation, pt *part) {
	var limits []string
	for i := range mine {
		if mib := pt.of(mine[i].Resources[protocol.ResourceGPUMemory]) >> 20; mib > 0 {
			limits = append(limits, strconv.Itoa(i)+"="+itoa(mib)+"M")
		}
	}
	if len(limits) > 0 {
		j.env(envMPSMemory, strings.Join(limits, ","), "gpu-memory of this container")
	}
	if n := pt.of(mine[0].Resources[protocol.ResourceGPUCore]); n > 0 && n < 100 {
		j.env(envMPSThreads, itoa(n), "gpu-core of this container")
	}
}

// of is the container's part of an amount.
func (pt *part) of(n int64) int64 {
	if pt.total <= 1 || n <= 0 {
		return max(n, 0)
	}
	if pt.own == pt.total {
		return n
	}
	return int64(float64(n) * float64(pt.own) / float64(pt.total))
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
