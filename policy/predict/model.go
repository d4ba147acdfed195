// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"cmp"
	"math"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Wall is a time of the wall clock, which alone outlives a reboot, in microseconds since 1970 UTC; 0 is unknown.
type Wall int64

func (w Wall) since(past Wall) unit.Micros { return unit.Micros(w - past) }

// Key names a model: a pod's UID, or one of the names below, which are upstream's.
type Key string

// The models that are no pod.
const (
	NodeKey   Key = "__node__"
	SystemKey Key = "__node-sys__"
)

// ClassKey is the model of the sum of all pods of a priority class.
func ClassKey(p protocol.PriorityClass) Key {
	switch p {
	case protocol.PriorityProd:
		return "__node-koord-prod__"
	case protocol.PriorityMid:
		return "__node-koord-mid__"
	case protocol.PriorityBatch:
		return "__node-koord-batch__"
	case protocol.PriorityFree:
		return "__node-koord-free__"
	default:
		return "__node-None__"
	}
}

// QoSKey is the model of the sum of all pods of a QoS class; upstream has none.
func QoSKey(q protocol.QoS) Key {
	switch q {
	case protocol.QoSLSE:
		return "__node-qos-LSE__"
	case protocol.QoSLSR:
		return "__node-qos-LSR__"
	case protocol.QoSLS:
		return "__node-qos-LS__"
	case protocol.QoSBE:
		return "__node-qos-BE__"
	case protocol.QoSSystem:
		return "__node-qos-SYSTEM__"
	default:
		return "__node-qos-none__"
	}
}

var classes = [...]protocol.PriorityClass{
	protocol.PriorityNone, protocol.PriorityProd, protocol.PriorityMid, protocol.PriorityBatch, protocol.PriorityFree,
}

var qosClasses = [...]protocol.QoS{
	protocol.QoSLSE, protocol.QoSLSR, protocol.QoSLS, protocol.QoSBE, protocol.QoSSystem, protocol.QoSNone,
}

// The percentiles that every model answers; 100 is the largest value that still counts.
var percentiles = [...]int{60, 90, 95, 98, 100}

// column is the index of a percentile, -1 when it is none of them.
func column(p int) int { return slices.Index(percentiles[:], p) }

// Usage is what something used of both resources; what could not be measured is not OK.
type Usage struct {
	CPU    unit.Measured[float64] // cores
	Memory unit.Measured[float64] // bytes
}

// PodUsage is the usage of one pod.
type PodUsage struct {
	UID      string
	Priority protocol.PriorityClass
	QoS      protocol.QoS
	Usage
}

// Training is the input of one minute. Pods are all that run, measured or not: who is left out counts as system.
type Training struct {
	Node Usage
	Pods []PodUsage
}

// Skip is a model that was not trained in one of its resources, because a figure was missing.
type Skip struct {
	Key         Key
	CPU, Memory bool
}

// model is what is known of one key. seen is when it was last trained or restored, for Collect.
type model struct {
	cpu, memory   histogram
	updated, seen Wall
}

// Set is all models of a node. It is not safe for concurrent use.
type Set struct {
	cfg    Config
	models map[Key]*model
}

// NewSet makes an empty set; the configuration must be valid.
func NewSet(c Config) *Set { return &Set{cfg: c, models: map[Key]*model{}} }

// Len is the number of models.
func (s *Set) Len() int { return len(s.models) }

// Train takes the figures of one interval and returns what could not be trained, ordered by key.
//
// Class models learn the sum of their pods (0 when there are none), the system's learns max(node − Σ pods, 0).
func (s *Set) Train(now Wall, in Training) []Skip {
	var skips []Skip
	learn := func(k Key, u Usage) {
		if sk, skipped := s.learn(now, k, u); skipped {
			skips = append(skips, sk)
		}
	}
	zero := Usage{unit.Got(0.0), unit.Got(0.0)}
	all := zero
	var sums [len(classes)]Usage
	var qosSums [len(qosClasses)]Usage
	for i := range sums {
		sums[i] = zero
	}
	for i := range qosSums {
		qosSums[i] = zero
	}
	for i := range in.Pods {
		p := &in.Pods[i]
		u := p.valid()
		learn(Key(p.UID), u)
		c := max(slices.Index(classes[:], p.Priority), 0)
		sums[c] = sums[c].plus(u)
		q := slices.Index(qosClasses[:], p.QoS)
		if q < 0 {
			q = len(qosClasses) - 1
		}
		qosSums[q] = qosSums[q].plus(u)
		all = all.plus(u)
	}
	node := in.Node.valid()
	learn(NodeKey, node)
	for i, c := range classes {
		learn(ClassKey(c), sums[i])
	}
	for i, q := range qosClasses {
		learn(QoSKey(q), qosSums[i])
	}
	learn(SystemKey, node.minus(all))
	slices.SortFunc(skips, func(a, b Skip) int { return cmp.Compare(a.Key, b.Key) })
	return skips
}

// learn adds a sample to a model, made where it is missing. Nothing measured makes no model.
func (s *Set) learn(now Wall, k Key, u Usage) (Skip, bool) {
	skip := Skip{Key: k, CPU: !u.CPU.OK, Memory: !u.Memory.OK}
	if skip.CPU && skip.Memory {
		return skip, true
	}
	m := s.models[k]
	if m == nil {
		m = s.empty()
		s.models[k] = m
	}
	m.updated, m.seen = now, now
	if u.CPU.OK {
		m.cpu.add(u.CPU.V, now)
	}
	if u.Memory.OK {
		m.memory.add(u.Memory.V, now)
	}
	return skip, skip.CPU || skip.Memory
}

func (s *Set) empty() *model {
	return &model{cpu: newHistogram(cpuBuckets, s.cfg.CPU.HalfLife), memory: newHistogram(memoryBuckets, s.cfg.Memory.HalfLife)}
}

// Move tells that the wall clock was set by so much, which is no time that has passed: everything keeps its age.
func (s *Set) Move(by unit.Micros) {
	for _, m := range s.models {
		m.updated += Wall(by)
		m.seen += Wall(by)
		m.cpu.move(Wall(by))
		m.memory.move(Wall(by))
	}
}

// Collect drops the models that were neither trained nor restored for Config.Expire and returns their keys in order. Call
// it after Train: then a jump of the clock that nobody has told expires nothing that is still there.
func (s *Set) Collect(now Wall) []Key {
	var gone []Key
	for k, m := range s.models {
		if now.since(m.seen) > s.cfg.Expire {
			gone = append(gone, k)
			delete(s.models, k)
		}
	}
	slices.Sort(gone)
	return gone
}

// valid drops what cannot be a usage.
func (u Usage) valid() Usage {
	drop := func(m unit.Measured[float64]) unit.Measured[float64] {
		if !m.OK || !(m.V >= 0) || math.IsInf(m.V, 0) {
			return unit.Measured[float64]{}
		}
		return m
	}
	return Usage{drop(u.CPU), drop(u.Memory)}
}

func (u Usage) plus(v Usage) Usage {
	add := func(a, b float64) float64 { return a + b }
	return Usage{both(u.CPU, v.CPU, add), both(u.Memory, v.Memory, add)}
}

// minus is max(u − v, 0).
func (u Usage) minus(v Usage) Usage {
	less := func(a, b float64) float64 { return max(a-b, 0) }
	return Usage{both(u.CPU, v.CPU, less), both(u.Memory, v.Memory, less)}
}

// both is f of two figures, missing when one of them is.
func both(a, b unit.Measured[float64], f func(a, b float64) float64) unit.Measured[float64] {
	if !a.OK || !b.OK {
		return unit.Measured[float64]{}
	}
	return unit.Got(f(a.V, b.V))
}
