// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/sample"
)

// ofPods and ofContainers are what is told of each, a line for each metric; scale turns the window's unit into the
// metric's.
var (
	ofPods = [...]row{
		{metrics.AgentPodCPU, sample.CPUUsage, 1},
		{metrics.AgentPodMemory, sample.MemoryUsage, 1},
		{metrics.AgentPodMemoryWithPageCache, sample.MemoryWithPageCache, 1},
		{metrics.AgentPodThrottled, sample.CPUThrottled, 1},
		{metrics.AgentPodRunQueueDelay, sample.RunQueueDelay, 1e-6},
		{metrics.AgentPodDiskRead, sample.DiskReadBytes, 1},
		{metrics.AgentPodDiskWrite, sample.DiskWriteBytes, 1},
		{metrics.AgentPodReceive, sample.NetworkReceive, 1},
		{metrics.AgentPodTransmit, sample.NetworkTransmit, 1},
		{metrics.AgentPodAllocLatency, sample.MemoryAllocLatency, 1e-6},
		{metrics.AgentPodDiskLatency, sample.DiskLatency, 1e-6},
		{metrics.AgentPodRTT, sample.NetworkRTT, 1e-6},
		{metrics.AgentPodLLC, sample.LLCOccupancy, 1},
	}
	ofContainers = [...]row{
		{metrics.AgentContainerCPU, sample.CPUUsage, 1},
		{metrics.AgentContainerMemory, sample.MemoryUsage, 1},
		{metrics.AgentContainerThrottled, sample.CPUThrottled, 1},
	}
)

type row struct {
	metric metrics.AgentMetric
	what   sample.Metric
	scale  float64
}

// pods emits what there is of each pod and container. Beyond the limits, which only a broken source reaches, they are
// counted.
func (t *teller) pods() {
	list := t.in.pods()
	told := min(len(list), maxPods)
	containers, left := 0, 0
	for _, p := range list[:told] {
		t.pod(p)
		for i := range p.Containers {
			c := &p.Containers[i]
			switch {
			case c.ID == "":
			case containers == maxContainers:
				left++
			default:
				containers++
				t.container(p, c)
			}
		}
	}
	t.emit(metrics.AgentLeftOut, float64(len(list)-told), "pods")
	t.emit(metrics.AgentLeftOut, float64(left), "containers")
	t.scaled()
	t.victims()
}

func (t *teller) pod(p *pods.Pod) {
	s, name := sample.OfPod(p.UID), className(p.Class())
	for _, r := range ofPods {
		t.measured(r.metric, s, r.what, r.scale, p.Namespace, p.Name, p.UID, name)
	}
	t.measured(metrics.AgentPodMemoryBandwidth, s, sample.MemoryBandwidthTotal, 1, p.Namespace, p.Name, p.UID, name, "total")
	t.measured(metrics.AgentPodMemoryBandwidth, s, sample.MemoryBandwidthLocal, 1, p.Namespace, p.Name, p.UID, name, "local")
	t.psi(metrics.AgentPodPSI, s, t.f.Node, p.Namespace, p.Name, p.UID)
}

func (t *teller) container(p *pods.Pod, c *pods.Container) {
	s, id := sample.OfContainer(c.ID), t.id(c.ID)
	for _, r := range ofContainers {
		t.measured(r.metric, s, r.what, r.scale, p.Namespace, p.Name, p.UID, c.Name, id)
	}
	t.psi(metrics.AgentContainerPSI, s, t.f.Node, p.Namespace, p.Name, p.UID, c.Name, id)
	t.measured(metrics.AgentContainerCPI, s, sample.Cycles, 1, t.f.Node, p.Namespace, p.Name, p.UID, c.Name, id, "cycles")
	t.measured(metrics.AgentContainerCPI, s, sample.Instructions, 1, t.f.Node, p.Namespace, p.Name, p.UID, c.Name, id, "instructions")
	for _, r := range lent {
		if v := r.of(&c.Requests); v > 0 {
			t.emit(metrics.AgentContainerRequests, v, t.f.Node, r.name, r.unit, p.Namespace, p.Name, p.UID, c.Name, id)
		}
		if v := r.of(&c.Limits); v > 0 {
			t.emit(metrics.AgentContainerLimits, v, t.f.Node, r.name, r.unit, p.Namespace, p.Name, p.UID, c.Name, id)
		}
	}
}

// psi emits the kernel's averages in percent, as upstream has them. The label cpu_full_supported says for every resource
// whether the kernel has "full" of CPU (5.13 and later).
func (t *teller) psi(m metrics.AgentMetric, s sample.Subject, labels ...string) {
	cpuFull, has := t.in.latest(s, sample.PSICPUFull)
	supported := "false"
	if has {
		supported = "true"
	}
	point := func(value float64, resource, degree string) {
		t.emit(m, 100*value, append(append(make([]string, 0, len(labels)+4), labels...), resource, "avg10", degree, supported)...)
	}
	for _, p := range pressures {
		if v, ok := t.in.latest(s, p.some); ok {
			point(v, p.upstream, degreeSome)
		}
		if p.full == sample.PSICPUFull {
			if has {
				point(cpuFull, p.upstream, degreeFull)
			}
		} else if v, ok := t.in.latest(s, p.full); ok {
			point(v, p.upstream, degreeFull)
		}
	}
}

// scaled emits what CPU burst has changed, of containers that are known.
func (t *teller) scaled() {
	if t.in.Pods == nil {
		return
	}
	for _, s := range t.f.Scaled[:min(len(t.f.Scaled), maxContainers)] {
		p, c, ok := t.in.Pods.Container(s.Container)
		if !ok {
			continue
		}
		if s.Quota > 0 {
			t.emit(metrics.AgentContainerQuota, float64(s.Quota), t.f.Node, p.Namespace, p.Name, t.id(c.ID), c.Name)
		}
		if s.Burst > 0 {
			t.emit(metrics.AgentContainerBurst, float64(s.Burst), t.f.Node, p.Namespace, p.Name, t.id(c.ID), c.Name)
		}
	}
}

// victims emits the signals of disturbed pods that are known.
func (t *teller) victims() {
	if t.in.Pods == nil {
		return
	}
	for _, v := range t.f.Victims[:min(len(t.f.Victims), maxPods)] {
		if p, ok := t.in.Pods.Pod(v.Pod); ok {
			t.emit(metrics.AgentPodDisturbed, v.Now, p.Namespace, p.Name, p.UID, v.Signal, "now")
			t.emit(metrics.AgentPodDisturbed, v.Usual, p.Namespace, p.Name, p.UID, v.Signal, "usual")
		}
	}
}

// id is a container's id as Kubernetes writes it, so that series join those of other exporters.
func (t *teller) id(id string) string {
	if t.f.Runtime == "" {
		return id
	}
	return t.f.Runtime + "://" + id
}
