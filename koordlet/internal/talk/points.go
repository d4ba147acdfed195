// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package talk

import (
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
)

// Emit takes one value; labels are in the order of the metric's catalogue entry and are the taker's to keep.
type Emit func(m metrics.AgentMetric, value float64, labels ...string)

// Points emits everything that has a value now. What was not measured has none.
func Points(in *Input, emit Emit) {
	t := &teller{in: in, f: in.Facts, emit: emit}
	t.node()
	t.suppression()
	t.classes()
	t.amounts()
	t.prediction()
	t.hostApps()
	t.caches()
	t.pods()
	t.agent()
}

// teller is one round of Points.
type teller struct {
	in   *Input
	f    *Facts
	emit Emit
}

// measured emits the present value, times scale, if there is one.
func (t *teller) measured(m metrics.AgentMetric, s sample.Subject, what sample.Metric, scale float64, labels ...string) bool {
	v, ok := t.in.latest(s, what)
	if ok {
		t.emit(m, v*scale, labels...)
	}
	return ok
}

func (t *teller) node() {
	name, node := t.f.Node, sample.OfNode()
	if !t.f.Started.IsZero() {
		t.emit(metrics.AgentStartTime, float64(t.f.Started.Unix()), name)
	}
	t.measured(metrics.AgentNodeCPU, node, sample.CPUUsage, 1, name)
	t.measured(metrics.AgentNodeMemory, node, sample.MemoryUsage, 1, name)
	t.measured(metrics.AgentSystemCPU, sample.OfSystem(), sample.CPUUsage, 1)
	t.measured(metrics.AgentSystemMemory, sample.OfSystem(), sample.MemoryUsage, 1)
	for _, p := range pressures {
		t.measured(metrics.AgentNodePressure, node, p.some, 1, p.name, degreeSome)
		t.measured(metrics.AgentNodePressure, node, p.full, 1, p.name, degreeFull)
	}
	t.usage(metrics.AgentNodeMetricNode, node, name)
	t.usage(metrics.AgentNodeMetricSystem, sample.OfSystem(), name)
	for _, n := range t.f.NUMA[:min(len(t.f.NUMA), maxNUMA)] {
		label := strconv.Itoa(n)
		t.usage(metrics.AgentNodeMetricNUMA, sample.OfNUMA(n), name, label)
		t.usage(metrics.AgentNodeMetricNUMASystem, sample.OfSystemNUMA(n), name, label)
		t.measured(metrics.AgentNUMACPU, sample.OfNUMA(n), sample.CPUUsage, 1, label)
		t.measured(metrics.AgentNUMAMemory, sample.OfNUMA(n), sample.MemoryUsage, 1, label)
	}
}

// usage emits CPU and memory of a subject as upstream names them.
func (t *teller) usage(m metrics.AgentMetric, s sample.Subject, labels ...string) {
	t.measured(m, s, sample.CPUUsage, 1, append(labels, "cpu", unitCore)...)
	t.measured(m, s, sample.MemoryUsage, 1, append(labels, "memory", unitByte)...)
}

// pressures are the resources of PSI; upstream calls memory "mem".
var pressures = [...]struct {
	name, upstream string
	some, full     sample.Metric
}{
	{"cpu", "cpu", sample.PSICPUSome, sample.PSICPUFull},
	{"memory", "mem", sample.PSIMemorySome, sample.PSIMemoryFull},
	{"io", "io", sample.PSIIOSome, sample.PSIIOFull},
}

const (
	degreeSome = "some"
	degreeFull = "full"
)

// suppression emits what holds BE down. Upstream's series of a policy stays when the policy changes; ours goes.
func (t *teller) suppression() {
	be := &t.f.BE
	if be.Limit != nil {
		t.emit(metrics.AgentBESuppressCPU, cores(*be.Limit), t.f.Node, be.Mode)
	}
	if be.Allowance != nil {
		t.emit(metrics.AgentBEAllowance, cores(*be.Allowance))
	}
	pool := func(count, info metrics.AgentMetric, pools []node.Pool) {
		var all topo.CPUSet
		for _, p := range pools {
			all = all.Union(p.CPUs)
		}
		if all.Empty() {
			return
		}
		t.emit(count, float64(all.Len()), t.f.Node)
		for _, cpu := range all.List() {
			t.emit(info, 1, t.f.Node, strconv.Itoa(cpu))
		}
	}
	pool(metrics.AgentSharePool, metrics.AgentSharePoolInfo, t.f.SharePools)
	pool(metrics.AgentBESharePool, metrics.AgentBESharePoolInfo, t.f.BESharePools)
}

// classes emits the sums by QoS class. LS of the suppression metrics is everybody who is not BE; without the figure of one
// class there is none.
func (t *teller) classes() {
	ls, whole := 0.0, true
	for _, c := range t.in.classes() {
		t.emit(metrics.AgentClassPods, float64(c.pods), c.name)
		t.emit(metrics.AgentClassCPURequests, cores(c.requests.AnyCPU()), c.name)
		t.emit(metrics.AgentClassMemoryRequests, float64(c.requests.AnyMemory()), c.name)
		used, ok := t.in.latest(sample.OfQoS(c.qos), sample.CPUUsage)
		if ok {
			t.emit(metrics.AgentClassCPU, used, c.name)
		}
		t.measured(metrics.AgentClassMemory, sample.OfQoS(c.qos), sample.MemoryUsage, 1, c.name)
		switch {
		case c.qos != protocol.QoSBE:
			ls, whole = ls+used, whole && ok
		case ok:
			t.emit(metrics.AgentBEUsedCPU, used, t.f.Node)
		}
	}
	if whole {
		t.emit(metrics.AgentLSUsedCPU, ls, t.f.Node)
	}
}

// class is one QoS class.
type class struct {
	qos      protocol.QoS
	name     string
	pods     int
	requests amount.Amounts
}

// classes adds up the pods that have not ended.
func (in *Input) classes() []class {
	out := make([]class, len(classOrder))
	at := map[protocol.QoS]*class{}
	for i, q := range classOrder {
		out[i] = class{qos: q, name: className(q)}
		at[q] = &out[i]
	}
	for _, p := range in.pods() {
		c := at[p.Class()]
		if c == nil {
			c = at[protocol.QoSNone]
		}
		c.pods++
		c.requests = c.requests.Plus(p.Requests())
	}
	return out
}

// lent are the batch and mid resources: they are what Koordinator has added to the node.
var lent = [...]struct {
	name, unit string
	of         func(*amount.Amounts) float64
}{
	{protocol.ResourceBatchCPU, unitInteger, func(a *amount.Amounts) float64 { return float64(a.BatchCPU) }},
	{protocol.ResourceBatchMemory, unitByte, func(a *amount.Amounts) float64 { return float64(a.BatchMemory) }},
	{protocol.ResourceMidCPU, unitInteger, func(a *amount.Amounts) float64 { return float64(a.MidCPU) }},
	{protocol.ResourceMidMemory, unitByte, func(a *amount.Amounts) float64 { return float64(a.MidMemory) }},
}

// Upstream's units. It names requests "integer" and limits "byte" whatever the resource is; here the unit is the resource's.
const (
	unitCore    = "core"
	unitByte    = "byte"
	unitInteger = "integer"
)

func (t *teller) amounts() {
	if t.f.Allocatable == nil {
		return
	}
	for _, r := range lent {
		t.emit(metrics.AgentNodeAllocatable, r.of(t.f.Allocatable), t.f.Node, r.name, r.unit)
	}
}

// prediction has upstream's names of the predictors; minPredictor is the result of both.
func (t *teller) prediction() {
	p := t.f.Prediction
	if p == nil {
		return
	}
	both := func(m metrics.AgentMetric, r predict.Resources, labels ...string) {
		with := func(resource, unit string) []string {
			return append(append([]string{t.f.Node}, labels...), resource, unit)
		}
		t.emit(m, cores(r.CPU), with("cpu", unitCore)...)
		t.emit(m, float64(r.Memory), with("memory", unitByte)...)
	}
	known := p.Pods.Known && p.Classes.Known
	for _, part := range []struct {
		name string
		predict.Part
	}{
		{"podReclaimablePredictor", p.Pods},
		{"priorityReclaimablePredictor", p.Classes},
		{"minPredictor", predict.Part{Reclaimable: p.Reclaimable, Peak: p.Peak, Known: known}},
	} {
		if part.Known {
			both(metrics.AgentPredictedReclaimable, part.Reclaimable, part.name)
			both(metrics.AgentPredictedPeak, part.Peak, part.name)
		}
	}
	prod := protocol.PriorityProd.String()
	both(metrics.AgentReclaimable, p.Reclaimable, prod)
	t.emit(metrics.AgentReclaimableStatus, one(!known), t.f.Node, prod)
	t.classPeaks("qos", p.ByQoS[:])
	t.classPeaks("priority", p.ByPriority[:])
}

func (t *teller) classPeaks(by string, sums []predict.Sum) {
	for _, s := range sums {
		if s.Known {
			t.emit(metrics.AgentClassPeak, cores(s.Peak.CPU), by, s.Class, "cpu", unitCore)
			t.emit(metrics.AgentClassPeak, float64(s.Peak.Memory), by, s.Class, "memory", unitByte)
		}
	}
}

func (t *teller) hostApps() {
	for _, a := range t.f.HostApps[:min(len(t.f.HostApps), maxHostApps)] {
		s := sample.OfHostApp(a.Name)
		t.measured(metrics.AgentHostApplication, s, sample.CPUUsage, 1, t.f.Node, a.Name, "cpu", a.Priority.String(), a.QoS.String())
		t.measured(metrics.AgentHostApplication, s, sample.MemoryUsage, 1, t.f.Node, a.Name, "memory", a.Priority.String(), a.QoS.String())
	}
}

func (t *teller) caches() {
	for _, group := range t.f.CacheGroups[:min(len(t.f.CacheGroups), maxGroups)] {
		for _, domain := range t.f.CacheDomains[:min(len(t.f.CacheDomains), maxDomains)] {
			s, id := sample.OfLLC(group, domain), strconv.Itoa(domain)
			name := group
			if name == "" {
				name = "root"
			}
			t.measured(metrics.AgentLLC, s, sample.LLCOccupancy, 1, t.f.Node, id, name)
			t.measured(metrics.AgentMemoryBandwidth, s, sample.MemoryBandwidthTotal, 1, id, name, "total")
			t.measured(metrics.AgentMemoryBandwidth, s, sample.MemoryBandwidthLocal, 1, id, name, "local")
		}
	}
}

// agent emits what the agent says of itself.
func (t *teller) agent() {
	f := t.f
	states := func(m metrics.AgentMetric, list []status.Source) {
		for _, s := range list[:min(len(list), status.MaxSources)] {
			t.emit(m, 1, s.Name, s.State)
		}
	}
	states(metrics.AgentSourceState, t.in.sources())
	states(metrics.AgentCollectorState, f.Collectors)
	for _, l := range f.Loops[:min(len(f.Loops), status.MaxLoops)] {
		if l.State != "" {
			t.emit(metrics.AgentLoopState, 1, l.Name, l.State)
		}
		if !l.At.IsZero() {
			t.emit(metrics.AgentLoopDecision, float64(l.At.UnixMilli())/1000, l.Name)
		}
	}
	for i := range f.Network {
		n := &f.Network[i]
		t.emit(metrics.AgentNetworkBytes, float64(n.Bytes), n.Direction, n.Class)
		t.emit(metrics.AgentNetworkDropped, float64(n.Dropped), n.Direction, n.Class)
	}
	t.evictions()
	t.emit(metrics.AgentGeneration, float64(f.Generations.Strategy), "strategy")
	t.emit(metrics.AgentGeneration, float64(f.Generations.Dynamic), "dynamic")
	t.emit(metrics.AgentGeneration, float64(f.Generations.Pods), "pods")
	if f.Goroutines > 0 {
		t.emit(metrics.AgentGoroutines, float64(f.Goroutines))
	}
	if s := t.in.PodsState; s != nil && !s.Good.IsZero() {
		t.emit(metrics.AgentPodsAge, max(t.in.Wall.Sub(s.Good).Seconds(), 0))
	}
	if w := t.in.Stats; w != nil {
		t.emit(metrics.AgentWindowSubjects, float64(w.Subjects))
		t.emit(metrics.AgentWindowSeries, float64(w.Series))
		t.emit(metrics.AgentWindowBytes, float64(w.Bytes))
		t.emit(metrics.AgentWindowDropped, float64(w.Refused), "refused")
		t.emit(metrics.AgentWindowDropped, float64(w.Invalid), "invalid")
		t.emit(metrics.AgentWindowDropped, float64(w.Late), "late")
	}
}

// evictions counts those of the last minutes by pod, in the order in which they happened.
func (t *teller) evictions() {
	type key struct{ namespace, name, feature string }
	counts := map[key]int{}
	var order []key
	recent := t.f.Evictions[max(len(t.f.Evictions)-status.MaxEvictions, 0):]
	for i := range recent {
		e := &recent[i]
		if e.Outcome != status.OutcomeEvicted || t.in.Wall.Sub(e.Time) > detailFor {
			continue
		}
		k := key{e.Namespace, e.Name, e.Feature}
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	for _, k := range order {
		t.emit(metrics.AgentPodEvictionDetail, float64(counts[k]), t.f.Node, k.namespace, k.name, k.feature)
	}
}

func cores(m unit.MilliCPU) float64 { return float64(m) / 1000 }

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
