// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package noderesource

import (
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/koord-rt/koord-rt/api/protocol"
	schedulingv1alpha1 "github.com/koord-rt/koord-rt/api/scheduling/v1alpha1"
	slov1alpha1 "github.com/koord-rt/koord-rt/api/slo/v1alpha1"
	topologyv1alpha1 "github.com/koord-rt/koord-rt/api/topology/v1alpha1"
	"github.com/koord-rt/koord-rt/cluster/slo/config"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/capacity"
)

// Input is what a decision about one node looks at. Node and Config are required; what is not there is nil.
type Input struct {
	Node     *corev1.Node
	Report   *capacity.Report
	Pods     []capacity.Pod // that have not finished
	Device   *schedulingv1alpha1.Device
	Topology *topologyv1alpha1.NodeResourceTopology
	SLO      *slov1alpha1.NodeSLO
	Config   *config.Config
	Now      time.Time
	// Since is the time since the node was written, ZonesSince since its zones were; long where nobody knows.
	Since, ZonesSince time.Duration
	// SharedGPU has koordinator.sh/gpu.shared written.
	SharedGPU bool
	// Contradicts is since when the node's reports have contradicted themselves without a break, the zero time where they do not.
	Contradicts time.Time
	// Seen is since when the report is known here, the zero time where nobody takes note; Came that it was seen to come.
	Seen time.Time
	Came bool
}

// Output is what to write and what to say.
type Output struct {
	// Node is the merge patch of nodes/status, Zones that of the NodeResourceTopology; nil where nothing is worth it.
	Node, Zones map[string]any
	// Lines are the resource model's, also where nothing is lent; nil where the strategy has never been read.
	Lines *capacity.Lines
	// Lent is what is lent out of the node after this; nothing where nothing is.
	Lent map[string]int64
	// Without says why there are no batch and mid resources, "" when there are.
	Without string
	// Weight is what part of the usual is lent; the zero value where nothing is.
	Weight capacity.Weighing
	// Held is the memory that would be lent too if best-effort pods did not use so much of what they have requested.
	Held unit.Bytes
	// Contradiction is what of the report cannot be, "" where all can.
	Contradiction string
	// Problems are what could not be read or calculated, and what holds instead; sorted.
	Problems []string
	// Again is when to look again although nothing has happened: the report grows old; 0 is never.
	Again time.Duration
}

// decision gathers what the node should have. A resource that is not Set is to be taken away.
type decision struct {
	in        *Input
	strategy  config.Colocation
	resources map[string]unit.Opt
	annotate  map[string]string // "" takes it away
	label     map[string]string
	zones     []zoneBatch
	hold      bool // nothing that is lent changes
	out       Output
}

// Decide says what to write of a node.
func Decide(in *Input) Output {
	d := &decision{in: in, resources: map[string]unit.Opt{}, annotate: map[string]string{}, label: map[string]string{}}
	who := config.Node{Name: in.Node.Name, Labels: in.Node.Labels, Annotations: in.Node.Annotations}
	var problems []config.Problem
	d.strategy, problems = in.Config.Colocation(who)
	for _, p := range problems {
		d.problem(p.Error())
	}
	var ratio unit.Ratio
	if in.Config.Unknown(config.KeyNormalization) {
		ratio = d.kept()
	} else {
		ratio = d.normalize(in.Config.Normalization(who))
	}
	if !in.Config.Unknown(config.KeyAmplification) {
		d.amplify(in.Config.Amplification(who), ratio)
	}
	d.devices()
	if in.Config.Unknown(config.KeyColocation) {
		d.problem(config.KeyColocation + " has never been read: what is lent out of the node stays as it is; repair the ConfigMap")
		d.out.Lent, d.hold = d.asItIs(), true
	} else {
		d.lend(ratio)
	}
	d.out.Node = d.patch()
	d.out.Zones = d.zonePatch()
	slices.Sort(d.out.Problems)
	return d.out
}

func (d *decision) problem(text string) { d.out.Problems = append(d.out.Problems, text) }

// normalize is the CPU normalisation that holds, in hundredths.
func (d *decision) normalize(s config.Normalization) unit.Ratio {
	const key = protocol.AnnotationNormalizationRatio
	in := capacity.Normalization{Enabled: s.Enable}
	switch text := d.in.Node.Labels[protocol.LabelNormalizationEnabled]; text {
	case "":
	case "true":
		in.Label = capacity.On
	case "false":
		in.Label = capacity.Off
	default:
		d.problem("label " + protocol.LabelNormalizationEnabled + ": " + strconv.Quote(text) + ", want true or false; the strategy decides")
	}
	in.Ratio, in.OK, in.Problem = d.model(s)
	had := d.in.Node.Annotations[key]
	ratio, problem := capacity.Normalize(in)
	switch {
	case problem != "":
		d.problem("CPU normalisation: " + problem + "; the node keeps the ratio that it has")
		return d.kept()
	case ratio == capacity.NotNormalized && had == "":
		// Off, and nobody has ever said otherwise: no annotation is a ratio of one.
	default:
		d.annotate[key] = protocol.FormatRatio(int64(ratio))
	}
	return ratio
}

// kept is the normalisation that the node has.
func (d *decision) kept() unit.Ratio {
	const key = protocol.AnnotationNormalizationRatio
	old, err := protocol.ParseNormalizationRatio(d.in.Node.Annotations[key])
	if err != nil {
		d.problem("annotation " + key + ": " + err.Error() + "; it counts as 1.00")
	}
	return unit.Ratio(old)
}

// asItIs is what is lent out of the node now.
func (d *decision) asItIs() map[string]int64 {
	out := map[string]int64{}
	for _, name := range lent {
		if v := whole(d.in.Node.Status.Allocatable, name); v.Set {
			out[name] = v.V
		}
	}
	return out
}

// model is what the strategy says of the node's CPU model.
func (d *decision) model(s config.Normalization) (ratio float64, ok bool, problem string) {
	const key = protocol.AnnotationCPUBasicInfo
	if d.in.Topology == nil || d.in.Topology.Annotations[key] == "" {
		return 0, false, "the node's NodeResourceTopology does not tell its CPU model yet (annotation " + key + ")"
	}
	info, err := protocol.ParseCPUBasicInfo(d.in.Topology.Annotations[key])
	if err != nil {
		return 0, false, "annotation " + key + " of the NodeResourceTopology: " + err.Error()
	}
	ratio, ok = s.Ratio(info.Model, info.HyperThread, info.Turbo)
	return ratio, ok, config.KeyNormalization + " has no ratio for CPU model " + strconv.Quote(info.Model) + " and no defaultRatio; add one of them"
}

// amplify is by how much the node is told larger than it is.
func (d *decision) amplify(s config.Amplification, normalization unit.Ratio) {
	var ratios map[string]float64
	if s.Enable {
		ratios = s.Ratios
	}
	all, problem := capacity.Amplify(ratios, normalization)
	if problem != "" {
		d.problem(config.KeyAmplification + ": " + problem + "; the node keeps what it has")
		return
	}
	text := ""
	if len(all) > 0 {
		hundredths := make(map[string]int64, len(all))
		for name, r := range all {
			hundredths[name] = int64(r)
		}
		text = protocol.FormatAmplification(hundredths)
	}
	d.annotate[protocol.AnnotationAmplificationRatio] = text
}

// off is why nothing is lent where nobody wants it.
const off = "colocation is off"

// lend calculates batch and mid resources, or takes them away.
func (d *decision) lend(ratio unit.Ratio) {
	for _, name := range lent {
		d.resources[name] = unit.Opt{}
	}
	d.annotate[protocol.AnnotationOriginExtended] = ""
	if !d.strategy.Enable {
		d.annotate[protocol.AnnotationLendingWeight] = ""
	}
	node, problems := nodeOf(d.in.Node)
	d.out.Problems = append(d.out.Problems, problems...)
	node.Zones = zonesOf(d.in.Topology)
	report := d.in.Report
	now, limit := instant(d.in.Now), span(d.strategy.Degrade)
	seen := d.in.sighting()
	stale := capacity.Stale(report, seen, now, limit)
	if d.out.Without = stale; !d.strategy.Enable {
		d.out.Without = off
	}
	if d.out.Without != "" {
		if stale != "" {
			report = nil
		}
		lines := capacity.LinesOf(&node, d.in.Pods, report, capacity.Amounts{})
		d.out.Lines = &lines
		return
	}
	d.out.Again = later(limit - max(now-report.At, unit.Micros(seen.For.Or(int64(now-report.At)))))
	weight := d.weigh(&node, report)
	pods := d.in.Pods
	batch := d.batch()
	all := batch.Batch(&node, pods, report).Percent(weight, weight)
	full := d.full(report)
	if full {
		calculated := all.Memory
		all.Memory = notRaised(calculated, originMemory(d.in.Node.Annotations[protocol.AnnotationOriginExtended]))
		d.out.Held = calculated - all.Memory
	}
	lines := capacity.LinesOf(&node, pods, report, all)
	d.out.Lines = &lines
	for i, z := range batch.BatchZones(&node, pods, report) {
		z = z.Percent(weight, weight)
		z.CPU = capacity.Normalized(z.CPU, ratio)
		if full {
			z.Memory = notRaised(z.Memory, d.zoneHad(node.Zones[i].ID))
		}
		d.zones = append(d.zones, zoneBatch{id: node.Zones[i].ID, batch: z})
	}
	all.CPU = capacity.Normalized(all.CPU, ratio)
	d.annotate[protocol.AnnotationOriginExtended] = protocol.FormatOriginExtended(
		protocol.BatchAmounts{MilliCPU: int64(all.CPU), Memory: int64(all.Memory)})
	booked, err := bookedOf(d.in.Node.Annotations[protocol.AnnotationThirdPartyAllocs])
	if err != nil {
		d.problem("annotation " + protocol.AnnotationThirdPartyAllocs + ": " + err.Error() + "; nothing is taken off for it")
	}
	all = capacity.LessThirdParty(all, booked)
	mid := d.mid().Mid(&node, pods, report).Percent(weight, weight)
	d.out.Lent = map[string]int64{
		protocol.ResourceBatchCPU: int64(all.CPU), protocol.ResourceBatchMemory: int64(all.Memory),
		protocol.ResourceMidCPU: int64(mid.CPU), protocol.ResourceMidMemory: int64(mid.Memory),
	}
	for name, v := range d.out.Lent {
		d.resources[name] = unit.Some(v)
	}
}

// sighting is what is known of the report here.
func (in *Input) sighting() capacity.Sighting {
	if in.Seen.IsZero() {
		return capacity.Sighting{}
	}
	return capacity.Sighting{For: unit.Some(int64(max(span(in.Now.Sub(in.Seen)), 0))), Came: in.Came}
}

func (d *decision) batch() *capacity.BatchStrategy {
	s := &d.strategy
	return &capacity.BatchStrategy{
		CPUReclaim: unit.Percent(s.CPUReclaimPercent), MemoryReclaim: unit.Percent(s.MemoryReclaimPercent),
		CPU: capacity.Calculation(s.CPUPolicy), Memory: capacity.Calculation(s.MemoryPolicy),
		CPUThreshold: given(s.BatchCPUPercent), MemoryThreshold: given(s.BatchMemoryPercent),
	}
}

func (d *decision) mid() *capacity.MidStrategy {
	s := &d.strategy
	return &capacity.MidStrategy{
		Static: s.MidStatic, StaticCPU: unit.Percent(s.MidStaticCPUPercent), StaticMemory: unit.Percent(s.MidStaticMemoryPercent),
		Unallocated: unit.Percent(s.MidUnallocatedPercent), CPUThreshold: unit.Percent(s.MidCPUPercent),
		MemoryThreshold: unit.Percent(s.MidMemoryPercent),
	}
}

func given(v *int64) unit.Opt {
	if v == nil {
		return unit.Opt{}
	}
	return unit.Some(*v)
}

// names are the resources in order.
func (d *decision) names() []string { return slices.Sorted(maps.Keys(d.resources)) }
