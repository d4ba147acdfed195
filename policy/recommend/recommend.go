// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package recommend says what the containers of a workload should ask for, from what they have used.
//
// Inputs are measurements of containers, one pass after the other; outputs are a target and two bounds for each container, by the
// formula of Kubernetes' Vertical Pod Autoscaler (https://github.com/kubernetes/autoscaler, vertical-pod-autoscaler, FAQ), and a
// history that the caller keeps through restarts. In between stand the decaying histograms of policy/predict: CPU learns every
// measurement, memory the highest of each interval, because a container that gets too little memory once is killed.
//
//	target = p90 · (1 + margin)
//	lower  = p50 · (1 + margin) · (1 + 0.001 / confidence)⁻²
//	upper  = p95 · (1 + margin) · (1 + 1 / confidence)
//	confidence = min(days in which it was measured, measurements / 1440)
//
// What could not be measured trains nothing. What was not looked at for long is forgotten, and confidence with it.
//
// Everything is a value in, value out, and time is an argument. It imports model/unit, policy/predict and the standard library;
// never os, net, log, fmt or time.
package recommend

import (
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
)

const (
	day = 24 * 60 * unit.Minute
	// gap is the longest time between two measurements that counts as measured all through, and what of a longer one counts.
	gap = 10 * unit.Minute
	// expire is how long a container that is no longer there is remembered, in half-lives: nothing is left of it by then.
	expire = 14
	// absent is how long a container may be missing while others of the workload are measured, until it is no longer told.
	absent = 60 * unit.Minute
	// MaxContainers of one workload that are remembered.
	MaxContainers = 32
)

// The most that is ever recommended.
const (
	mostCPU    = 1e9     // a million cores
	mostMemory = 1 << 50 // bytes
)

// Config of a Model. The zero value is not usable: start from Default.
type Config struct {
	// HalfLife is the time after which a measurement weighs half.
	HalfLife unit.Micros
	// PeakEvery is the interval of which memory learns the highest measurement.
	PeakEvery unit.Micros
	// ColdStart is for how long a container must have been measured until something is recommended; 0 is from the first on.
	ColdStart unit.Micros
	// Margin is added to all figures, in percent.
	Margin unit.Percent
}

// Default is the autoscaler's: a half-life and intervals of a day, 15 % margin. It waits for an hour; the autoscaler waits for nothing.
func Default() Config {
	return Config{HalfLife: day, PeakEvery: day, ColdStart: 60 * unit.Minute, Margin: 15}
}

// Validate names the first field that cannot be worked with.
func (c Config) Validate() error {
	switch {
	case c.HalfLife < unit.Minute:
		return errors.New("recommend: the half-life is below one minute")
	case c.PeakEvery < unit.Minute:
		return errors.New("recommend: the interval of memory peaks is below one minute")
	case c.ColdStart < 0:
		return errors.New("recommend: the cold start is negative")
	case c.Margin < 0 || c.Margin > 1000:
		return errors.New("recommend: the margin is outside of 0..1000 percent")
	}
	return nil
}

// Sample is what one container of one pod uses.
type Sample struct {
	Container string
	predict.Usage
}

// Model is what is known of the containers of one workload. It is not safe for concurrent use.
type Model struct {
	cfg        Config
	containers map[string]*container
}

// New makes an empty model; the configuration must be valid.
func New(c Config) *Model { return &Model{cfg: c, containers: map[string]*container{}} }

// Len is the number of containers.
func (m *Model) Len() int { return len(m.containers) }

// container is what is known of one, all pods together.
type container struct {
	cpu, memory series
	// peak is the most memory since since, which is 0 while there is none.
	peak  float64
	since predict.Wall
}

// series is what is known of one resource.
type series struct {
	histogram *predict.Histogram
	// seen is when it was last measured, 0 for never.
	seen predict.Wall
	// measured is for how long it was, samples how often.
	measured, samples float64
}

// Learn takes the measurements of one pass, of all pods, and returns how many figures could not be learned: not measured, or no amount,
// or of a container too many.
func (m *Model) Learn(now predict.Wall, samples []Sample) (skipped int) {
	for i := range samples {
		s := &samples[i]
		c := m.containers[s.Container]
		if c == nil {
			if len(m.containers) >= MaxContainers || !amount(s.CPU) && !amount(s.Memory) {
				skipped += 2
				continue
			}
			c = m.empty()
			m.containers[s.Container] = c
		}
		skipped += c.learn(now, s.Usage, m.cfg)
	}
	for name, c := range m.containers {
		if now-c.last() > predict.Wall(expire*m.cfg.HalfLife) {
			delete(m.containers, name)
		}
	}
	return skipped
}

func (m *Model) empty() *container {
	return &container{cpu: series{histogram: predict.NewCPU(m.cfg.HalfLife)}, memory: series{histogram: predict.NewMemory(m.cfg.HalfLife)}}
}

// amount reports whether a figure is one.
func amount(v unit.Measured[float64]) bool { return v.OK && v.V >= 0 && !math.IsInf(v.V, 0) }

func (c *container) learn(now predict.Wall, u predict.Usage, cfg Config) (skipped int) {
	if amount(u.CPU) {
		c.cpu.look(now, cfg.HalfLife)
		c.cpu.histogram.Add(u.CPU.V, now)
	} else {
		skipped++
	}
	if !amount(u.Memory) {
		return skipped + 1
	}
	if back := c.memory.seen - now; back > 0 && c.since != 0 {
		c.since -= back // the clock has gone back, and the past with it
	}
	c.memory.look(now, cfg.HalfLife)
	if c.since != 0 && now-c.since >= predict.Wall(cfg.PeakEvery) {
		c.memory.histogram.Add(c.peak, c.since+predict.Wall(cfg.PeakEvery))
		c.since = 0
	}
	if c.since == 0 {
		c.since, c.peak = now, 0
	}
	c.peak = max(c.peak, u.Memory.V)
	return skipped
}

// look counts a measurement, and forgets of the earlier ones what the histogram forgets when nobody has looked for long, or the clock
// says so.
func (s *series) look(now predict.Wall, halfLife unit.Micros) {
	switch passed := now - s.seen; {
	case s.seen == 0 || passed < 0:
	case passed <= predict.Wall(gap):
		s.measured += float64(passed)
	default:
		left := math.Exp2(-float64(passed) / float64(halfLife))
		s.measured, s.samples = s.measured*left+float64(gap), s.samples*left
	}
	s.samples++
	s.seen = now
}

// last is when the container was last measured.
func (c *container) last() predict.Wall { return max(c.cpu.seen, c.memory.seen) }

// names of the containers in order.
func (m *Model) names() []string { return slices.Sorted(maps.Keys(m.containers)) }
