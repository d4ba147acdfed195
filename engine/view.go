// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package engine

import (
	"maps"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/feature"
)

// Static is what the machine is: read at start and again by the probe's loop.
type Static struct {
	Name                        string
	Topology                    *topo.Topology
	Kernel                      node.Kernel
	CPUAllocatable              unit.MilliCPU
	MemAllocatable, MemCapacity unit.Bytes
	// Weight and PodWeight are used where the configuration says auto.
	Weight, PodWeight unit.WeightFormula
}

// Views builds the View and publishes it. Handlers call Load; every other method is for the edges that learn of a
// change. The mutex orders builders; it is held for copying and, when the strategy changed, for merging it.
type Views struct {
	cur atomic.Pointer[published]

	mu      sync.Mutex
	cfg     config.Node
	static  Static
	file    *strategy.Spec
	source  string
	snap    handoff.Snapshot
	runtime node.Runtime
	claims  node.Claims
	gen     uint64
	// effective is the merged strategy of the last build, kept until the strategy changes.
	effective *strategy.Spec
	onChange  func(everybody bool)
}

// published is a View with what is derived from it once per build.
type published struct {
	view   *node.View
	states map[protocol.Feature]node.FeatureState
	list   []node.FeatureState
	source string
	// past are earlier Views, oldest first, that differ from this one in nothing but the agent's dynamic state.
	past []*node.View
}

// NewViews builds the first View. cfg is valid; file is the node's own strategy, nil for none, and source names it.
func NewViews(cfg config.Node, static Static, file *strategy.Spec, source string) *Views {
	b := &Views{cfg: cfg, static: static, file: file, source: source, onChange: func(bool) {}}
	b.build(true, nil)
	return b
}

// Load is the present View; never nil. Nobody writes to it.
func (b *Views) Load() *node.View { return b.cur.Load().view }

// States are the features' states under the present View.
func (b *Views) States() map[protocol.Feature]node.FeatureState { return b.cur.Load().states }

// List is the present View, its features' states in their order, and the source of its strategy: all three of one build, which two calls
// would not be.
func (b *Views) List() (*node.View, []node.FeatureState, string) {
	c := b.cur.Load()
	return c.view, c.list, c.source
}

// OnChange sets what is called after each change but those of claims, outside the lock; everybody: it may bear on more than a change
// of the agent's dynamic state. The View may have gone on by then. Call it before the edges start.
func (b *Views) OnChange(f func(everybody bool)) { b.onChange = f }

// SetRuntime tells what Configure learned.
func (b *Views) SetRuntime(r node.Runtime) {
	switch b.cfg.CDI {
	case config.CDIOn:
		r.Fields.CDI = !r.NoCDI // a release that drops them would leave containers without their devices
	case config.CDIOff:
		r.Fields.CDI = false
	}
	b.change(func() bool { b.runtime = r; return false })
}

// SetStatic tells what the probe found. The weight formulas stay: no probe of the kernel can know them.
func (b *Views) SetStatic(s Static) {
	b.change(func() bool {
		s.Weight, s.PodWeight = b.static.Weight, b.static.PodWeight
		b.static = s
		return false
	})
}

// SetWeight tells the runtime's weight formula.
func (b *Views) SetWeight(f unit.WeightFormula) {
	b.change(func() bool { b.static.Weight = f; return false })
}

// SetFile tells a new content of the node's own strategy.
func (b *Views) SetFile(s *strategy.Spec, source string) {
	b.change(func() bool { b.file, b.source = s, source; return true })
}

// SetHandoff tells a new snapshot of the node agent's files. The View stays when only their expiry or their generations
// differ: each new one has every pod and container decided again, and the agent prolongs its state twice a minute.
func (b *Views) SetHandoff(s handoff.Snapshot) {
	b.mu.Lock()
	if reflect.DeepEqual(s.Strategy, b.snap.Strategy) {
		s.Strategy = b.snap.Strategy
	}
	merge := s.Strategy != b.snap.Strategy
	fixed := !merge && s.StrategyFromState == b.snap.StrategyFromState && reflect.DeepEqual(s.Pods, b.snap.Pods)
	same := fixed && s.Dynamic.Same(&b.snap.Dynamic)
	if b.snap = s; !same {
		var past []*node.View
		if fixed {
			past = b.cur.Load().succeeded()
		}
		b.build(merge, past)
	}
	b.mu.Unlock()
	if !same {
		b.onChange(!fixed)
	}
}

func (b *Views) change(f func() (merge bool)) {
	b.mu.Lock()
	merge := f()
	b.build(merge, nil)
	b.mu.Unlock()
	b.onChange(true)
}

// SetClaims tells the CPUs of running LSE and LSR containers; Reserved stays the configuration's. It is called in
// handlers: no merge, no callback.
func (b *Views) SetClaims(c node.Claims) {
	b.mu.Lock()
	defer b.mu.Unlock()
	same := func(a, b node.PodClaim) bool { return a.LSE.Equal(b.LSE) && a.LSR.Equal(b.LSR) }
	if maps.EqualFunc(c.ByPod, b.claims.ByPod, same) {
		return
	}
	b.claims = c
	next := *b.cur.Load()
	v := *next.view
	b.gen++
	c.Reserved = v.Claims.Reserved
	v.Generation, v.Claims = b.gen, c
	next.view, next.past = &v, nil
	b.cur.Store(&next)
}

// build makes a View of all inputs, which has differed from those of past in the dynamic state alone. The lock is held, or nobody
// else knows b yet.
func (b *Views) build(merge bool, past []*node.View) {
	spec, source := b.file, b.source
	if b.snap.Strategy != nil {
		spec, source = b.snap.Strategy, "handoff"
		if b.snap.StrategyFromState {
			source = "handoff of an earlier boot"
		}
	}
	if merge || b.effective == nil {
		if spec == nil {
			spec, source = &strategy.Spec{}, "defaults"
		}
		e := strategy.Effective(*spec)
		b.effective = &e
	} else if spec == nil {
		source = "defaults"
	}
	b.gen++
	v := &node.View{
		Generation: b.gen, Name: b.static.Name,
		Topology: b.static.Topology, CPUAllocatable: b.static.CPUAllocatable,
		MemAllocatable: b.static.MemAllocatable, MemCapacity: b.static.MemCapacity,
		Strategy:         b.effective,
		OptOutNamespaces: b.cfg.OptOut.Namespaces,
		ForeignHandlers:  b.cfg.OptOut.RuntimeHandlers,
		Ceded:            ceded(b.cfg.Cede),
		Limits:           limits(b.cfg.Limits),
		Kernel:           b.static.Kernel,
		Runtime:          b.runtime,
		Claims:           b.claims,
		Dynamic:          b.snap.Dynamic,
		Pods:             b.snap.Pods,
	}
	v.Claims.Reserved = reserved(b.cfg.ReservedCPUs)
	v.Runtime.Weight = formula(b.cfg.WeightFormula, b.static.Weight)
	v.Runtime.PodWeight = b.static.PodWeight
	for _, f := range protocol.Features() {
		v.Modes[f] = mode(b.cfg.ModeOf(f))
	}
	for _, name := range b.cfg.FailClosed {
		if f, ok := protocol.ParseFeature(name); ok {
			v.FailClosed = v.FailClosed.With(f)
		}
	}
	p := &published{view: v, list: feature.States(v), source: source, states: map[protocol.Feature]node.FeatureState{}, past: past}
	for _, s := range p.list {
		if f, ok := protocol.ParseFeature(s.Feature); ok {
			p.states[f] = s
		}
	}
	b.cur.Store(p)
}

func mode(m config.Mode) node.Mode {
	switch m {
	case config.ModeObserve:
		return node.Observe
	case config.ModeOff:
		return node.Off
	}
	return node.Active
}

func ceded(names []string) plan.Knobs {
	var s plan.Knobs
	for _, name := range names {
		if k, ok := plan.ParseKnob(name); ok {
			s |= plan.KnobSet(k)
		}
	}
	return s
}

// reserved is validated configuration: a list that does not parse was refused at start.
func reserved(list string) topo.CPUSet {
	s, err := topo.ParseCPUSet(list)
	if err != nil {
		return topo.CPUSet{}
	}
	return s
}

func formula(name string, auto unit.WeightFormula) unit.WeightFormula {
	switch name {
	case config.WeightLinear:
		return unit.Linear
	case config.WeightQuadratic:
		return unit.Quadratic
	}
	return auto
}

func limits(l config.Limits) node.Limits {
	out := node.Limits{
		OOMScoreAdjMax:     l.OOMScoreAdjMax,
		CPUBurstPercentMax: unit.Percent(l.CPUBurstPercentMax),
		MemoryMinPercent:   unit.Percent(l.MemoryMinPercentMax),
		MemoryLowPercent:   unit.Percent(l.MemoryLowPercentMax),
		MemoryNodePercent:  unit.Percent(l.MemoryNodePercentMax),
		MBAPercentMax:      unit.Percent(l.MBAPercentMax),
		PodResctrl:         l.ResctrlPodGroups, CoreSched: l.CoreSched, Devices: l.Devices,
		BeyondClass:      l.BeyondClass,
		ExclusivePercent: unit.Percent(l.NodeCPUSetMaxPercent),
		BlkIO:            l.BlkIO, IOLatencyMin: l.IOLatencyMin,
	}
	if l.OOMScoreAdjMin != nil {
		out.OOMScoreAdjMin = unit.Some(int64(*l.OOMScoreAdjMin))
	}
	return out
}
