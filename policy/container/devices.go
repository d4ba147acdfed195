// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package container

import (
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Resource names by which a container asks for a kind of device, the most telling first. Those in percent come with 100
// for a whole device, the others count devices.
var (
	gpuNames = []string{
		protocol.ResourceGPUMemoryRatio, protocol.ResourceGPUCore, protocol.ResourceGPU, protocol.ResourceNvidiaGPU,
		protocol.ResourceGPUMemory, protocol.ResourceAMDGPU, protocol.ResourceDCU, protocol.ResourceGPUShared,
		protocol.ResourceDeprecatedGPUMemoryRatio, protocol.ResourceDeprecatedGPUCore, protocol.ResourceDeprecatedGPU,
	}
	rdmaNames = []string{protocol.ResourceRDMA, protocol.ResourceDeprecatedRDMA}
)

// part is a container's part of the devices of its pod.
type part struct {
	// asks: the container gets devices. own of total is its part, before of total belongs to containers whose names
	// sort before it. guessed: nobody could tell the containers apart.
	asks               bool
	own, total, before int64
	guessed            bool
	resource           string
}

// partOf finds who gets the pod's devices of a kind, because the annotation is per pod:
//
//   - the containers that request one of the names, by the node agent's pod cache, in proportion to what the scheduler counts: the sum of what
//     runs together, or one init container that asks for more;
//   - the only container of the cached pod;
//   - when the cache tells no request, each of the cached containers that run together with an equal part, and an init container with all;
//   - when the pod is not in the cache, the container is taken for the only one, and a problem says so.
func (j *job) partOf(names []string) part {
	specs := j.View.Pods[j.Pod.UID].Containers
	if len(specs) == 0 {
		return part{asks: true, own: 1, total: 1, guessed: true}
	}
	own, known := specs[j.c.Name]
	for _, name := range names {
		pt := part{resource: name}
		var first int64
		for container, s := range specs {
			n := min(max(s.Devices[name], 0), 1<<48)
			if s.Init {
				first = max(first, n)
				continue
			}
			pt.total += n
			if container < j.c.Name {
				pt.before += n
			}
		}
		if pt.total = max(pt.total, first); pt.total > 0 {
			if own.Init {
				pt.before = 0 // the others have not begun
			}
			pt.own = max(own.Devices[name], 0)
			pt.asks = pt.own > 0
			return pt
		}
	}
	if own.Init {
		return part{asks: true, own: 1, total: 1}
	}
	together := int64(0)
	for _, s := range specs {
		if !s.Init {
			together++
		}
	}
	return part{asks: known, own: 1, total: max(together, 1), guessed: together > 1}
}

// devices plans what device-allocated gives to this container.
func (j *job) devices() {
	gpus, rdma := j.Pod.Ask.Devices[protocol.DeviceGPU], j.Pod.Ask.Devices[protocol.DeviceRDMA]
	if len(gpus)+len(rdma) == 0 || !j.Plans(protocol.FeatureDevices) {
		return
	}
	if !j.View.Limits.Devices {
		j.Problem(protocol.AnnotationDeviceAllocated, "devices by annotation are switched off in the node's limits")
		return
	}
	if len(gpus) > 0 {
		j.gpu(gpus)
	}
	if len(rdma) > 0 {
		j.rdma(rdma)
	}
}

// addNode plans a device node. The value is "c MAJOR:MINOR rwm".
func (j *job) addNode(n *node.DeviceNode, why string) {
	if j.Plan.Find(j.Target, plan.Device, n.Path) != nil {
		return
	}
	j.SetKey(protocol.FeatureDevices, plan.Device, n.Path, plan.Text("c "+itoa(n.Major)+":"+itoa(n.MinorNumber)+" rwm"), why)
}

// addControls plans the nodes that every container with a device of the type needs.
func (j *job) addControls(kind string) {
	nodes := j.View.Kernel.Devices
	for i := range nodes {
		if nodes[i].Type == kind && nodes[i].Control {
			j.addNode(&nodes[i], "control node for "+kind)
		}
	}
}

// env plans a variable. One that the container already has is replaced: runtimes take the last.
func (j *job) env(name, value, why string) {
	j.SetKey(protocol.FeatureDevices, plan.Env, name, plan.Text(value), why)
}

// hasEnv reports whether the container brings the variable itself.
func (j *job) hasEnv(name string) bool { return slices.Contains(j.c.EnvNames, name) }
