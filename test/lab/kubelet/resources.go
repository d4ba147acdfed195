// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kubelet

import "fmt"

// QoS is a Kubernetes QoS class.
type QoS string

// The QoS classes.
const (
	Guaranteed QoS = "Guaranteed"
	Burstable  QoS = "Burstable"
	BestEffort QoS = "BestEffort"
)

// amount of one resource: CPU in thousandths of a core, memory in bytes.
type amount struct {
	request, limit int64
	asked          bool // a request is present, be it 0
}

// demand is what kubelet reads of one container's, or one pod's, resources.
type demand struct{ cpu, memory amount }

// demandOf reads native resources; as the API server does, a request that is absent
// takes the limit's value.
func demandOf(r Resources) (demand, error) {
	cpu, err := amountOf(r, "cpu", Quantity.Milli)
	if err != nil {
		return demand{}, err
	}
	memory, err := amountOf(r, "memory", Quantity.Value)
	return demand{cpu: cpu, memory: memory}, err
}

func amountOf(r Resources, name string, read func(Quantity) (int64, error)) (amount, error) {
	var a amount
	var err error
	if q, ok := r.Limits[name]; ok {
		if a.limit, err = read(q); err != nil {
			return amount{}, fmt.Errorf("read limit of %s: %w", name, err)
		}
		a.request, a.asked = a.limit, true
	}
	if q, ok := r.Requests[name]; ok {
		if a.request, err = read(q); err != nil {
			return amount{}, fmt.Errorf("read request of %s: %w", name, err)
		}
		a.asked = true
	}
	return a, nil
}

// podDemand is what the pod's cgroup and sandbox are computed from.
type podDemand struct {
	sum            demand // over containers, or the largest init container's where that is more; without overhead
	overhead       demand // request = limit
	containers     []demand
	period         int64 // of the kubelet's CFS quotas, in µs
	allCPULimits   bool  // every container has a CPU limit
	allMemoryLimit bool  // every container has a memory limit
}

func podDemandOf(p Pod) (podDemand, error) {
	d := podDemand{allCPULimits: true, allMemoryLimit: true, period: p.quotaPeriod()}
	var starting demand
	for _, c := range p.Containers {
		one, err := demandOf(c.Resources)
		if err != nil {
			return podDemand{}, fmt.Errorf("pod %s container %s: %w", p.Name, c.Name, err)
		}
		d.containers = append(d.containers, one)
		if c.Init {
			starting.cpu, starting.memory = starting.cpu.most(one.cpu), starting.memory.most(one.memory)
		} else {
			d.sum.cpu, d.sum.memory = d.sum.cpu.plus(one.cpu), d.sum.memory.plus(one.memory)
		}
		d.allCPULimits = d.allCPULimits && one.cpu.limit != 0
		d.allMemoryLimit = d.allMemoryLimit && one.memory.limit != 0
	}
	d.sum.cpu, d.sum.memory = d.sum.cpu.most(starting.cpu), d.sum.memory.most(starting.memory)
	over, err := demandOf(Resources{Limits: p.Overhead})
	if err != nil {
		return podDemand{}, fmt.Errorf("pod %s overhead: %w", p.Name, err)
	}
	d.overhead = over
	return d, nil
}

func (a amount) plus(b amount) amount {
	return amount{request: a.request + b.request, limit: a.limit + b.limit, asked: a.asked || b.asked}
}

// most is, of request and limit each, the larger one.
// Source: k8s.io/component-helpers resource.AggregateContainerRequests, AggregateContainerLimits.
func (a amount) most(b amount) amount {
	return amount{request: max(a.request, b.request), limit: max(a.limit, b.limit), asked: a.asked || b.asked}
}

// withOverhead adds overhead to the request always, to the limit only where one exists.
func (a amount) withOverhead(over amount) amount {
	a.request += over.request
	a.asked = a.asked || over.asked
	if a.limit != 0 {
		a.limit += over.limit
	}
	return a
}

// qos is Kubernetes' classification: only cpu and memory count, zero is absent.
func (d podDemand) qos() QoS {
	best, guaranteed := true, true
	for _, c := range d.containers {
		for _, a := range []amount{c.cpu, c.memory} {
			best = best && a.request == 0 && a.limit == 0
			guaranteed = guaranteed && a.limit != 0 && a.request == a.limit
		}
	}
	switch {
	case best:
		return BestEffort
	case guaranteed:
		return Guaranteed
	}
	return Burstable
}

// QoSOf is the pod's QoS class.
func QoSOf(p Pod) (QoS, error) {
	d, err := podDemandOf(p)
	return d.qos(), err
}

// quotaPeriod is kubelet's CFS period in microseconds, unless cpuCFSQuotaPeriod says otherwise.
const quotaPeriod = 100000

// cpuShares = milli * 1024 / 1000, within 2 and 262144; 0 gives 2.
// Source: kubelet cm.MilliCPUToShares.
func cpuShares(milli int64) int64 { return min(max(milli*1024/1000, 2), 262144) }

// cpuQuota = milli * period / 1000 µs, at least 1000; 0 stays 0 (no quota).
// Source: kubelet cm.MilliCPUToQuota.
func cpuQuota(milli, period int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period/1000, 1000)
}

// cpuWeight = 1 + (shares - 2) * 9999 / 262142, kubelet's own linear formula for its
// cgroups; runc 1.3.2 and later use another one for containers.
// Source: kubelet cm.getCPUWeight.
func cpuWeight(shares int64) int64 { return 1 + (shares-2)*9999/262142 }

// oomScoreAdj = 1000 - 1000 * request / capacity for Burstable, within 3 and 999;
// Guaranteed and node-critical -997, BestEffort 1000. Memory in bytes.
// Source: kubelet qos.GetContainerOOMScoreAdjust.
func oomScoreAdj(class QoS, critical bool, request, capacity int64) int64 {
	switch {
	case critical || class == Guaranteed:
		return -997
	case class == BestEffort:
		return 1000
	}
	return min(max(1000-1000*request/capacity, 3), 999)
}
