// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package predict says how much of what the node's pods have asked for they will not use.
//
// Inputs, once a minute, are the usage of the node and of every pod (the 90th percentile of that minute), and the pods
// with their requests; outputs are the peak of each and the amounts that can be reclaimed, upstream's
// prodReclaimableMetric and prodPeakMetric (koordinator-node.md §7.3). In between stand decaying histograms: one per pod,
// one for the node, one per priority class, one per QoS class and one for the system, which the caller keeps through restarts
// as checkpoints.
//
// Three rules keep the prediction honest. A figure that could not be measured trains nothing that depends on it: without
// one pod of a class there is no sum of the class, without one pod at all there is no system. A model with too little
// evidence is cold and predicts nothing: its pods count with their whole request. Nothing known means nothing
// reclaimable.
//
// Everything is a value in, value out, and time is an argument. It imports model/unit, api/protocol and the standard
// library; never os, net, log, fmt or time.
package predict

import (
	"cmp"
	"errors"
	"math"
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

const hour = 60 * unit.Minute

// Config of a Set. The zero value is not usable: start from Default.
type Config struct {
	CPU, Memory Resource
	// ColdStart: a pod younger than this counts with its whole request, and so does whatever has less evidence than half
	// of what regular training over such a time gives. 0 trusts a model from its first sample on.
	ColdStart unit.Micros
	// TrainEvery is the interval at which the caller trains.
	TrainEvery unit.Micros
	// Expire is how long a model that is not trained stays.
	Expire unit.Micros
	// Margin is added to every peak, in percent of it; by the class of the pods, and for what is no pod.
	Margin Margin
}

// Resource is how one resource is predicted.
type Resource struct {
	// HalfLife is the time after which a sample weighs half.
	HalfLife unit.Micros
	// Percentile is the peak: 60, 90, 95, 98 or 100.
	Percentile int
	// Classes are the percentiles of classes that have one of their own; 0 is Percentile.
	Classes PerClass[int]
}

// PerClass is a setting of each priority class, of pods without one, and of what is no pod.
type PerClass[T any] struct{ Prod, Mid, Batch, Free, None, System T }

// Margin is a safety margin per class.
type Margin = PerClass[unit.Percent]

// Default is upstream's: half-lives of 12 h and 24 h, peaks p95 (CPU) and p98 (memory), margins of 10 %, cold for 24 h,
// trained every minute, forgotten after 30 minutes.
func Default() Config {
	return Config{
		CPU:        Resource{HalfLife: 12 * hour, Percentile: 95},
		Memory:     Resource{HalfLife: 24 * hour, Percentile: 98},
		ColdStart:  24 * hour,
		TrainEvery: unit.Minute,
		Expire:     30 * unit.Minute,
		Margin:     Margin{Prod: 10, Mid: 10, Batch: 10, Free: 10, None: 10, System: 10},
	}
}

// Validate names the first field that cannot be worked with.
func (c Config) Validate() error {
	m := c.Margin
	switch {
	case c.CPU.HalfLife < unit.Minute || c.Memory.HalfLife < unit.Minute:
		return errors.New("prediction: a half-life is below one minute")
	case column(c.CPU.Percentile) < 0 || column(c.Memory.Percentile) < 0:
		return errors.New("prediction: percentiles " + strconv.Itoa(c.CPU.Percentile) + " and " + strconv.Itoa(c.Memory.Percentile) +
			" for CPU and memory, want 60, 90, 95, 98 or 100")
	case !c.CPU.classed() || !c.Memory.classed():
		return errors.New("prediction: the percentile of a class is not 60, 90, 95, 98 or 100")
	case c.ColdStart < 0:
		return errors.New("prediction: the cold start is negative")
	case c.TrainEvery < unit.Second:
		return errors.New("prediction: the training interval is below one second")
	case c.Expire < c.TrainEvery:
		return errors.New("prediction: models expire before they are trained again")
	case min(m.Prod, m.Mid, m.Batch, m.Free, m.None, m.System) < 0 || max(m.Prod, m.Mid, m.Batch, m.Free, m.None, m.System) > 1000:
		return errors.New("prediction: a margin is outside of 0..1000 percent")
	}
	return nil
}

// classed reports whether the percentiles of classes are some.
func (r Resource) classed() bool {
	c := r.Classes
	for _, p := range [...]int{c.Prod, c.Mid, c.Batch, c.Free, c.None, c.System} {
		if p != 0 && column(p) < 0 {
			return false
		}
	}
	return true
}

// of is the setting of a priority class.
func (c PerClass[T]) of(p protocol.PriorityClass) T {
	switch p {
	case protocol.PriorityProd:
		return c.Prod
	case protocol.PriorityMid:
		return c.Mid
	case protocol.PriorityBatch:
		return c.Batch
	case protocol.PriorityFree:
		return c.Free
	default:
		return c.None
	}
}

// reading is how the peak of something is read from its model.
type reading struct {
	// cpu and memory are percentiles.
	cpu, memory int
	margin      unit.Percent
}

func (c *Config) reading(cpu, memory int, margin unit.Percent) reading {
	return reading{cmp.Or(cpu, c.CPU.Percentile), cmp.Or(memory, c.Memory.Percentile), margin}
}

// of is that of a priority class, system that of what is no pod.
func (c *Config) of(p protocol.PriorityClass) reading {
	return c.reading(c.CPU.Classes.of(p), c.Memory.Classes.of(p), c.Margin.of(p))
}

func (c *Config) system() reading {
	return c.reading(c.CPU.Classes.System, c.Memory.Classes.System, c.Margin.System)
}

// warm is the evidence from which on a histogram is believed: half of what samples every e over the cold start c leave
// behind at half-life h, h/ln 2 · (1 − 2^(−c/h)) / e.
func (c Config) warm(h unit.Micros) float64 {
	if c.ColdStart <= 0 {
		return 0
	}
	life, every := h.Seconds()/math.Ln2, c.TrainEvery.Seconds()
	return life * (1 - math.Exp2(-c.ColdStart.Seconds()/h.Seconds())) / every / 2
}
