// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Window answers what was measured.
type Window interface {
	// Query summarises the samples of (from, to] on the loops' clock.
	Query(s sample.Subject, m sample.Metric, from, to unit.Micros) sample.Summary
}

// Input is what one report is made from.
type Input struct {
	// Now is the wall clock, At the same moment on the loops' clock.
	Now    time.Time
	At     unit.Micros
	Window Window
	// Object is the UID of the newest NodeMetric that was seen, "" while there was none; Policy is its.
	Object string
	Policy slo.Collect
	// Pods of the node; a pod without samples is not reported.
	Pods *pods.Snapshot
	// Capacity of the node, zero while it is not known: small changes are measured by it.
	Capacity Figures
	// NUMA are the numbers of the memory nodes.
	NUMA []int
	// HostApps are the NodeSLO's host applications.
	HostApps []HostApp
	// Reclaimable and Peak are predictions for the prod band; nil while there are none.
	Reclaimable, Peak *Figures
	// Interference is what Interfered makes of the last decision; nil when nobody is disturbed.
	Interference map[string]*slo.PodInterference
	// Evicted is how many pods were evicted in the last hour.
	Evicted int
}

// HostApp is one host application.
type HostApp struct {
	Name, Priority, QoS string
}

// Figures are an amount of CPU and memory.
type Figures struct {
	CPU    unit.MilliCPU
	Memory unit.Bytes
}

func (f Figures) plus(g Figures) Figures {
	return Figures{unit.Add(f.CPU, g.CPU), unit.Add(f.Memory, g.Memory)}
}

// enough is the share of a window that must have samples for its percentiles to be told, as upstream's cold start filter.
const enough = 0.5

// Totals are the node's figures that a report is about; they also decide whether there is news.
type Totals struct {
	// Node, BE and LS are averages over the policy's aggregation; Known says that the node was measured.
	Node, BE, LS, System Figures
	Known                bool
	// Requests and limits are sums over the pods that have not finished.
	NodeRequest, NodeLimit, BERequest, LSRequest Figures
	Reclaimable                                  Figures
	Pods                                         int
	// Held are the UIDs of pods that are held because they disturb others, in order, with spaces.
	Held string
	// Evicted is how many pods were evicted in the last hour.
	Evicted int
}

// Measure adds up the node's figures:
//
//	BE = Σ pods of QoS BE,  LS = Σ all other pods,  node = BE + LS + host applications + system
//
// A pod's class is its label's, else that of its Kubernetes class. Batch and mid resources count as CPU and memory.
func Measure(in *Input) Totals {
	q := newAsker(in)
	var t Totals
	t.Node, t.Known = q.usage(sample.OfNode(), q.memory)
	for class := protocol.QoSNone; class <= protocol.QoSSystem; class++ {
		used, _ := q.usage(sample.OfQoS(class), sample.MemoryUsage)
		if class == protocol.QoSBE {
			t.BE = t.BE.plus(used)
		} else {
			t.LS = t.LS.plus(used)
		}
	}
	t.System, _ = q.usage(sample.OfSystem(), sample.MemoryUsage)
	if q.memory != sample.MemoryUsage {
		q.cached(&t)
	}
	for _, p := range in.Pods.Pods {
		if p.Finished() {
			continue
		}
		t.Pods++
		request, limit := folded(p.Requests()), folded(p.Limits())
		t.NodeRequest, t.NodeLimit = t.NodeRequest.plus(request), t.NodeLimit.plus(limit)
		if p.Class() == protocol.QoSBE {
			t.BERequest = t.BERequest.plus(request)
		} else {
			t.LSRequest = t.LSRequest.plus(request)
		}
	}
	t.Evicted = in.Evicted
	if in.Reclaimable != nil {
		t.Reclaimable = *in.Reclaimable
	}
	for _, uid := range slices.Sorted(maps.Keys(in.Interference)) {
		if len(in.Interference[uid].Held) > 0 {
			t.Held += uid + " "
		}
	}
	return t
}

// cached replaces memory by that with page cache, which is not measured by class: sums over the pods, and what is left. As in sums that are
// measured, a pod counts for the part of the time in which it ran: one that has finished, or has just come, is in the node's average by no more.
func (q *asker) cached(t *Totals) {
	t.BE.Memory, t.LS.Memory = 0, 0
	whole := max(q.over(sample.OfNode(), q.memory, q.in.Policy.Aggregate).Count, 1)
	rest := t.Node.Memory
	take := func(s sample.Subject) unit.Bytes {
		used := q.over(s, q.memory, q.in.Policy.Aggregate)
		part := bytesOf(used.Avg * min(float64(used.Count)/float64(whole), 1))
		rest -= part
		return part
	}
	for _, p := range q.in.Pods.Pods {
		if used := take(sample.OfPod(p.UID)); p.Class() == protocol.QoSBE {
			t.BE.Memory += used
		} else {
			t.LS.Memory += used
		}
	}
	for _, a := range q.in.HostApps {
		take(sample.OfHostApp(a.Name))
	}
	t.System.Memory = max(rest, 0)
}

// folded counts lent CPUs and memory as what they are.
func folded(a amount.Amounts) Figures { return Figures{a.AnyCPU(), a.AnyMemory()} }

// Build makes the whole status. Figures that were not measured are left out, never 0.
func Build(in *Input) slo.NodeMetricStatus {
	q, t := newAsker(in), Measure(in)
	now := slo.At(in.Now)
	out := slo.NodeMetricStatus{UpdateTime: &now, NodeMetric: &slo.NodeMetricInfo{
		Request: list(t.NodeRequest), Limit: limits(t.NodeLimit),
		AggregatedNodeUsages: q.aggregated(sample.OfNode(), q.memory), AggregatedSystemUsages: q.aggregated(sample.OfSystem(), sample.MemoryUsage),
	}}
	n := out.NodeMetric
	if t.Known {
		n.Usage = list(t.Node)
		n.NodeUsage, n.SystemUsage = resources(t.Node), resources(t.System)
		out.BEMetric = &slo.ClassMetric{Usage: list(t.BE), Request: list(t.BERequest)}
		out.LSMetric = &slo.ClassMetric{Usage: list(t.LS), Request: list(t.LSRequest)}
	}
	for _, id := range in.NUMA {
		if used, ok := q.usage(sample.OfNUMA(id), sample.MemoryUsage); ok {
			system, _ := q.usage(sample.OfSystemNUMA(id), sample.MemoryUsage)
			n.NUMAUsages = append(n.NUMAUsages, slo.NUMAUsage{
				NUMANodeID: int32(id), NodeUsage: resources(used), SystemUsage: resources(system), //nolint:gosec // at most protocol.MaxNUMANode
			})
		}
	}
	for _, p := range in.Pods.Pods {
		if !p.Finished() {
			q.pod(p, &out)
		}
	}
	for _, a := range in.HostApps {
		if used, ok := q.usage(sample.OfHostApp(a.Name), q.memory); ok {
			out.HostApplicationMetric = append(out.HostApplicationMetric, slo.HostApplicationMetric{
				Name: a.Name, Usage: resources(used), Priority: a.Priority, QoS: a.QoS,
			})
		}
	}
	out.ProdReclaimableMetric, out.ProdPeakMetric = prediction(in.Reclaimable), prediction(in.Peak)
	if in.Evicted > 0 {
		out.Evictions = &slo.EvictionMetric{LastHour: int64(in.Evicted)}
	}
	return out
}

// pod adds one pod in both forms.
func (q *asker) pod(p *pods.Pod, out *slo.NodeMetricStatus) {
	used, ok := q.usage(sample.OfPod(p.UID), q.memory)
	if !ok {
		return
	}
	one := slo.PodMetric{Name: p.Name, Namespace: p.Namespace, PodUsage: resources(used), Priority: p.Band().String(), QoS: p.Class().String()}
	if found := q.in.Interference[p.UID]; found != nil {
		one.Extensions = &slo.PodExtensions{Interference: found}
	}
	out.PodsMetric = append(out.PodsMetric, one)
	if !q.in.Policy.Containers {
		return
	}
	entry := slo.PodContainers{PodRef: slo.PodRef{Namespace: p.Namespace, Name: p.Name}}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.ID == "" {
			continue
		}
		if used, ok := q.usage(sample.OfContainer(c.ID), q.memory); ok {
			entry.Containers = append(entry.Containers, slo.ContainerMetric{Name: c.Name, Usage: list(used), Limit: limits(folded(c.Limits))})
		}
	}
	out.PodMetrics = append(out.PodMetrics, entry)
}

// asker asks the window for one report.
type asker struct {
	in *Input
	// memory is the metric of the policy.
	memory sample.Metric
}

func newAsker(in *Input) *asker {
	q := &asker{in: in, memory: sample.MemoryUsage}
	switch in.Policy.Memory {
	case slo.MemoryWithPageCache:
		q.memory = sample.MemoryWithPageCache
	case slo.MemoryWithHotPageCache:
		q.memory = sample.MemoryWithHotPages
	}
	// A kernel that does not tell (hot pages need kidled) is reported without page cache.
	if !q.over(sample.OfNode(), q.memory, in.Policy.Aggregate).Known() {
		q.memory = sample.MemoryUsage
	}
	return q
}

// over is a window that ends now.
func (q *asker) over(s sample.Subject, m sample.Metric, d time.Duration) sample.Summary {
	return q.in.Window.Query(s, m, q.in.At-unit.Micros(d/time.Microsecond), q.in.At+1)
}

// usage is the average over the aggregation; not ok without a sample of both.
func (q *asker) usage(s sample.Subject, memory sample.Metric) (Figures, bool) {
	cpu, mem := q.over(s, sample.CPUUsage, q.in.Policy.Aggregate), q.over(s, memory, q.in.Policy.Aggregate)
	return Figures{milli(cpu.Avg), bytesOf(mem.Avg)}, cpu.Known() && mem.Known()
}

// aggregated are the percentiles of each window that is half covered.
func (q *asker) aggregated(s sample.Subject, memory sample.Metric) []slo.AggregatedUsage {
	var out []slo.AggregatedUsage
	for _, d := range q.in.Policy.Windows {
		cpu, mem := q.over(s, sample.CPUUsage, d), q.over(s, memory, d)
		if cpu.Covered < enough || mem.Covered < enough {
			continue
		}
		out = append(out, slo.AggregatedUsage{Duration: slo.Duration(d), Usage: map[string]slo.ResourceMap{
			slo.AggregateAvg: resources(Figures{milli(cpu.Avg), bytesOf(mem.Avg)}),
			slo.AggregateP50: resources(Figures{milli(cpu.P50), bytesOf(mem.P50)}),
			slo.AggregateP90: resources(Figures{milli(cpu.P90), bytesOf(mem.P90)}),
			slo.AggregateP95: resources(Figures{milli(cpu.P95), bytesOf(mem.P95)}),
			slo.AggregateP99: resources(Figures{milli(cpu.P99), bytesOf(mem.P99)}),
		}})
	}
	return out
}

// milli rounds cores to milli-CPUs.
func milli(cores float64) unit.MilliCPU {
	return unit.MilliCPU(math.Round(min(max(cores, 0), math.MaxInt32) * 1000))
}

// bytesOf rounds bytes down to KiB: more digits would only make every report differ from the last.
func bytesOf(b float64) unit.Bytes { return unit.Bytes(min(max(b, 0), math.MaxInt64/2)) &^ 1023 }

func list(f Figures) slo.ResourceList {
	return slo.ResourceList{"cpu": strategy.Quantity(amount.FormatCPU(f.CPU)), "memory": strategy.Quantity(amount.FormatMemory(f.Memory))}
}

// limits leaves out what is not limited.
func limits(f Figures) slo.ResourceList {
	out := list(f)
	if f.CPU == 0 {
		delete(out, "cpu")
	}
	if f.Memory == 0 {
		delete(out, "memory")
	}
	return out
}

func resources(f Figures) slo.ResourceMap { return slo.ResourceMap{Resources: list(f)} }

func prediction(f *Figures) *slo.Prediction {
	if f == nil {
		return nil
	}
	return &slo.Prediction{Resource: resources(*f)}
}
